//! The output of `glasscache simulate` and `glasscache slabs`: help, tables, JSON, exit codes.

use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

const LATENCY: &str =
    r#"{"unit":"us","single_us":[[1000,1000],[10000,2000]],"batch_us":[[1,1000],[11,2000]]}"#;
const ITEMS: &str = r#"{"key":"a","parent":null,"size":1000}
{"key":"b","parent":"a","size":1000}
{"key":"c","parent":"a","size":1000}
{"key":"d","parent":"b","size":10000}
"#;
const REQUESTS: &str = r#"{"request":0,"time_us":1,"instance":0,"base_us":10000,"page":"a","route":"home","items":["a","b","a","c"]}
{"request":1,"time_us":2,"instance":0,"base_us":10000,"page":"b","route":"page","items":["b","d","b"]}
"#;

fn run_glasscache(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_glasscache"))
        .args(arguments)
        .env("COLUMNS", "100")
        .output()
        .unwrap()
}

fn to_text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A log in a folder of its own.
fn write_log(items: &str, requests: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in [
        ("items.jsonl", items),
        ("requests.jsonl", requests),
        ("latency.json", LATENCY),
    ] {
        std::fs::write(folder.path().join(name), content).unwrap();
    }
    folder
}

fn run_simulate(folder: &Path, more: &[&str]) -> Output {
    let folder = folder.to_str().unwrap();
    run_glasscache(&[&["simulate", folder], more].concat())
}

/// The exit code and the first line of stderr, without the name of the folder.
fn run_and_read_failure(folder: &Path, more: &[&str]) -> (Option<i32>, String) {
    let output = run_simulate(folder, more);
    let errors = to_text(&output.stderr).replace(folder.to_str().unwrap(), "LOG");
    (
        output.status.code(),
        errors.lines().next().unwrap_or_default().to_owned(),
    )
}

#[test]
fn help_snapshots() {
    insta::assert_snapshot!(
        "simulate_help",
        to_text(&run_glasscache(&["simulate", "--help"]).stdout)
    );
    insta::assert_snapshot!(
        "slabs_help",
        to_text(&run_glasscache(&["slabs", "--help"]).stdout)
    );
}

#[test]
fn prints_the_worked_example_as_a_table() {
    let folder = write_log(ITEMS, REQUESTS);
    let notation = "remote,lru:2,children,subtree:1,subtree:2,fixed:1+children";
    let output = run_simulate(folder.path(), &["--strategies", notation, "--by", "route"]);
    assert_eq!(output.status.code(), Some(0));
    insta::assert_snapshot!("worked_example", to_text(&output.stdout));
}

#[test]
fn prints_the_worked_example_as_json() {
    let folder = write_log(ITEMS, REQUESTS);
    let output = run_simulate(
        folder.path(),
        &["--strategies", "remote,subtree:2", "--json"],
    );
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let all = &document["result"]["strategies"]["subtree:2"]["all"];
    assert_eq!(all["added_ns"], 5_200_000);
    assert_eq!(all["calls"], 2);
    assert_eq!(all["keys"], 6);
    assert_eq!(all["latency_ns_pct"]["99.9"], 12_900_000);
    let second_half = &document["result"]["strategies"]["remote"]["second_half"];
    assert_eq!(second_half["requests"], 1);
    assert_eq!(second_half["added_ns"], 3_000_000);
    assert_eq!(second_half["slowdown_pct"]["50"], 0.3);
    assert_eq!(second_half["share_slower"]["0.25"], 1.0);
}

#[test]
fn a_fixed_set_names_its_items_and_strategies_have_words() {
    let folder = write_log(ITEMS, REQUESTS);
    let output = run_simulate(folder.path(), &["--strategies", "remote,fixed:2", "--json"]);
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let result = &document["result"];
    let fixed = &result["fixed_set"];
    assert_eq!(
        (&fixed["strategy"], &fixed["count"]),
        (&"fixed:2".into(), &2.into())
    );
    let keys: Vec<&str> = fixed["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["key"].as_str().unwrap())
        .collect();
    assert_eq!(
        keys,
        ["a", "b"],
        "each is used by the one request of the first half"
    );
    // One call of 1,000 bytes takes 1 ms.
    assert_eq!(
        (&fixed["items"][0]["saved_ms"], &fixed["items"][0]["bytes"]),
        (&1.0.into(), &1000.into())
    );
    assert_eq!(
        result["strategies"]["fixed:2"]["words"],
        "keep 2 items (1.95 KiB)"
    );
    assert_eq!(result["log"]["items_of_unknown_size"], 0);
    let table = to_text(&run_simulate(folder.path(), &["--strategies", "remote,fixed:2"]).stdout);
    assert!(
        table.contains("What `fixed:2` keeps") && table.contains("In words: "),
        "{table}"
    );
}

#[test]
fn without_parents_no_strategy_fetches_children_and_unknown_sizes_are_counted() {
    let items = ITEMS.replace("\"parent\":\"a\"", "\"parent\":null");
    let items = items.replace("\"parent\":\"b\"", "\"parent\":null");
    let items = items.replace("{\"key\":\"d\",\"parent\":null,\"size\":10000}\n", "");
    let folder = write_log(&items, REQUESTS);
    let output = run_simulate(folder.path(), &["--json"]);
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let strategies = document["result"]["strategies"].as_object().unwrap();
    assert!(strategies.contains_key("remote"), "{document}");
    assert!(
        strategies
            .keys()
            .all(|name| !name.contains("children") && !name.contains("subtree"))
    );
    assert_eq!(document["result"]["log"]["items_of_unknown_size"], 1);
    let table = to_text(&run_simulate(folder.path(), &[]).stdout);
    assert!(
        table.contains("No item has a parent") && table.contains("1 used item has an unknown size"),
        "{table}"
    );
}

#[test]
fn excluded_routes_do_not_affect_the_result() {
    let three = format!(
        "{REQUESTS}{}",
        REQUESTS
            .lines()
            .next()
            .unwrap()
            .replace("\"time_us\":1", "\"time_us\":3")
    );
    let folder = write_log(ITEMS, &format!("{three}\n"));
    let output = run_simulate(
        folder.path(),
        &["--strategies", "remote", "--exclude", "page", "--json"],
    );
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["result"]["log"]["requests"], 2);
    let (code, line) = run_and_read_failure(folder.path(), &["--exclude", "nowhere"]);
    assert_eq!(
        (code, line.as_str()),
        (
            Some(2),
            "glasscache: no request has the route `nowhere` (--exclude)"
        )
    );
}

#[test]
fn a_truncated_log_is_read_up_to_its_last_complete_request() {
    let folder = write_log(
        ITEMS,
        &format!("{REQUESTS}{{\"request\":2,\"time_us\":3,\"inst"),
    );
    let output = run_simulate(folder.path(), &["--strategies", "remote"]);
    assert_eq!(output.status.code(), Some(0), "{}", to_text(&output.stderr));
    assert!(to_text(&output.stdout).contains(
        "The log ends in the middle of a request: it is read up to its last complete request, 2."
    ));
}

#[test]
fn invalid_logs_exit_with_code_4_and_one_error_line() {
    let cases = [
        (ITEMS.replace("null", "\"d\""), REQUESTS.to_owned()),
        (ITEMS.replacen("1000", "-1", 1), REQUESTS.to_owned()),
        (
            ITEMS.to_owned(),
            REQUESTS.replace("\"time_us\":2", "\"time_us\":0"),
        ),
        (
            ITEMS.to_owned(),
            REQUESTS.replace("\"instance\":0", "\"instance\":\"x\""),
        ),
        (
            ITEMS.to_owned(),
            REQUESTS.lines().next().unwrap().to_owned() + "\n",
        ),
        (ITEMS.to_owned(), String::new()),
        ("PK\u{3}\u{4}".to_owned(), REQUESTS.to_owned()),
    ];
    let found: Vec<String> = cases
        .iter()
        .map(|(items, requests)| {
            let (code, line) = run_and_read_failure(write_log(items, requests).path(), &[]);
            assert_eq!(code, Some(4), "{line}");
            line
        })
        .collect();
    insta::assert_snapshot!("wrong_logs", found.join("\n"));
}

#[test]
fn usage_errors_and_missing_files_have_different_exit_codes() {
    let folder = write_log(ITEMS, REQUESTS);
    let (code, line) = run_and_read_failure(folder.path(), &["--strategies", "lfu:3"]);
    assert_eq!(code, Some(2));
    assert!(
        line.starts_with("glasscache: unknown strategy `lfu:3`: remote, lru:N"),
        "{line}"
    );
    assert_eq!(run_and_read_failure(folder.path(), &["--draw"]).0, Some(4));
    std::fs::remove_file(folder.path().join("latency.json")).unwrap();
    assert_eq!(run_and_read_failure(folder.path(), &[]).0, Some(3));
    assert_eq!(
        run_and_read_failure(&folder.path().join("nothing"), &[]).0,
        Some(3)
    );
}

#[test]
fn search_prints_the_front_and_saves_a_strategy_file() {
    let mut requests = String::new();
    for number in 0..40 {
        let line = REQUESTS.lines().nth(number % 2).unwrap();
        requests += &line.replacen(
            &format!("\"time_us\":{}", number % 2 + 1),
            &format!("\"time_us\":{number}"),
            1,
        );
        requests += "\n";
    }
    let folder = write_log(ITEMS, &requests);
    let file = folder.path().join("best.strategy");
    let output = run_simulate(
        folder.path(),
        &[
            "--search",
            "--memory",
            "20k",
            "--json",
            "--save",
            file.to_str().unwrap(),
        ],
    );
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["result"]["tried"], 217);
    let front = document["result"]["front"].as_array().unwrap();
    assert!(front.len() > 1 && front[0]["memory_bytes"] == 0);
    assert!(
        std::fs::read_to_string(file)
            .unwrap()
            .starts_with("glasscache-strategy 1\nstrategy ")
    );
}

#[test]
fn pages_are_complete_and_self_contained() {
    let folder = write_log(ITEMS, REQUESTS);
    let file = folder.path().join("page.html");
    run_simulate(folder.path(), &["--html", file.to_str().unwrap()]);
    let html = std::fs::read_to_string(file).unwrap();
    assert!(html.ends_with("</html>\n") && html.len() < 700_000);
    assert!(!html.contains("http") && !html.contains("src="));
}

#[test]
fn slab_plan_of_a_histogram() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sizes.csv");
    let rows: Vec<String> = (1..200)
        .map(|i| format!("{},{}\n", i * 137, 20_000 / i))
        .collect();
    let rows = rows.concat();
    std::fs::write(&file, format!("size,count\n{rows}")).unwrap();
    let path = file.to_str().unwrap();
    let output = run_glasscache(&["slabs", path, "--memory", "64m", "--classes", "12"]);
    assert_eq!(output.status.code(), Some(0), "{}", to_text(&output.stderr));
    insta::assert_snapshot!("slab_plan", to_text(&output.stdout));
    std::fs::write(&file, "size,count\n100,5\n200,many\n").unwrap();
    let output = run_glasscache(&["slabs", path]);
    assert_eq!(output.status.code(), Some(4));
    let line = to_text(&output.stderr).replace(path, "FILE");
    assert_eq!(
        line.trim_end(),
        "glasscache: FILE, row 2, column count: expected a whole number, found \"many\""
    );
}

#[test]
fn a_small_memory_holds_what_the_first_pages_of_the_classes_hold() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sizes.csv");
    let rows: Vec<String> = (1..200)
        .map(|i| format!("{},{}\n", i * 137, 20_000 / i))
        .collect();
    std::fs::write(&file, format!("size,count\n{}", rows.concat())).unwrap();
    let path = file.to_str().unwrap();
    let run = |memory: &str| {
        let output = run_glasscache(&["slabs", path, "--memory", memory, "--json"]);
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        document["result"].clone()
    };
    let (small, large) = (run("8m"), run("64m"));
    let items = |result: &serde_json::Value| result["options"][0]["items_that_fit"].as_u64();
    // 21 classes are in use: each has its first page, whatever -m is.
    assert_eq!(small["options"][0]["used_classes"], 21);
    assert!(items(&small).map(|items| items * 4) > small["items_in_segments"].as_u64());
    assert!(items(&small) < items(&large), "{small}");
    let output = run_glasscache(&["slabs", path, "--memory", "8m"]);
    let printed = to_text(&output.stdout);
    let note = "memcached gives each class its first page even where -m is used up";
    let printed = printed.replace('\n', " ");
    assert!(
        printed.contains("in 8.00 MiB, taking 62.0 MiB (today 21.0 MiB)"),
        "{printed}"
    );
    assert!(printed.contains(note), "{printed}");
}

#[test]
fn the_sentence_comes_first_and_then_six_rows_of_each_table() {
    let folder = tempfile::tempdir().unwrap();
    let site = folder.path().join("site");
    let site = site.to_str().unwrap();
    let generated = run_glasscache(&[
        "generate",
        "topic-tree",
        site,
        "--requests",
        "2000",
        "--items",
        "300",
    ]);
    assert_eq!(generated.status.code(), Some(0));
    let sizes = folder.path().join("sizes.csv");
    let rows: Vec<String> = (1..100).map(|i| format!("{},9\n", i * 300)).collect();
    std::fs::write(&sizes, format!("size,count\n{}", rows.concat())).unwrap();
    let sizes = sizes.to_str().unwrap();
    for (arguments, answer, hidden) in [
        (&["simulate", site][..], "Under `remote`", true),
        (&["simulate", site, "--all"], "Under `remote`", false),
        (
            &[
                "simulate",
                site,
                "--strategies",
                "remote,lru:1,lru:2,lru:3,lru:4,lru:5,lru:6",
            ],
            "Under `remote`",
            false,
        ),
        (
            &["simulate", site, "--search", "--memory", "64k"],
            "Within 64k",
            true,
        ),
        (
            &["slabs", sizes],
            "% of the memory holds no item today",
            true,
        ),
        (
            &["slabs", sizes, "--all"],
            "% of the memory holds no item today",
            false,
        ),
        (&["inspect", site], "2,000 requests read", true),
        (&["inspect", site, "--all"], "2,000 requests read", false),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_glasscache"))
            .args(arguments)
            .env("COLUMNS", "80")
            .output()
            .unwrap();
        let printed = to_text(&output.stdout);
        let first = printed.split("\n\n").next().unwrap_or_default();
        assert!(first.replace('\n', " ").contains(answer), "{printed}");
        assert_eq!(printed.contains("--all prints"), hidden, "{printed}");
        assert!(
            printed
                .lines()
                .all(|line| line.chars().count() <= 80 || line.starts_with("To copy: ")),
            "{printed}"
        );
    }
}

#[test]
fn the_table_of_strategies_is_best_first_and_wide_on_request() {
    let folder = write_log(ITEMS, REQUESTS);
    let arguments = ["--strategies", "remote,lru:2,children"];
    let narrow = to_text(&run_simulate(folder.path(), &arguments).stdout);
    let row = |name: &str| narrow.find(&format!("\n{name} ")).unwrap();
    assert!(
        row("lru:2") < row("children") && row("children") < row("remote"),
        "{narrow}"
    );
    assert!(!narrow.contains(">=100 %"), "{narrow}");
    let wide = [&arguments[..], &["--wide"]].concat();
    let wide = to_text(&run_simulate(folder.path(), &wide).stdout);
    assert!(
        wide.contains(">=100 %") && wide.contains("used keys"),
        "{wide}"
    );
}

#[test]
fn routes_of_a_log_without_routes_are_refused() {
    let requests = REQUESTS
        .replace("\"route\":\"home\",", "")
        .replace("\"route\":\"page\",", "");
    let folder = write_log(ITEMS, &requests);
    let (code, line) = run_and_read_failure(folder.path(), &["--by", "route"]);
    assert_eq!(code, Some(2), "{line}");
    assert!(line.contains("--by route has no effect"), "{line}");
}

#[test]
fn strategies_that_are_named_are_all_printed_in_each_table_of_strategies() {
    let folder = write_log(ITEMS, REQUESTS);
    let mut latency: serde_json::Value = serde_json::from_str(LATENCY).unwrap();
    let percentiles =
        r#"{"5":1110,"25":1240,"50":1350,"75":1510,"90":1750,"95":2020,"99":3200,"99.9":7400}"#;
    latency["single_pct"] = serde_json::json!({ "1000": serde_json::from_str::<serde_json::Value>(percentiles).unwrap() });
    std::fs::write(folder.path().join("latency.json"), latency.to_string()).unwrap();
    let names: Vec<String> = (1..8).map(|items| format!("lru:{items}")).collect();
    let arguments = ["--draw", "--strategies", &names.join(",")];
    let printed = to_text(&run_simulate(folder.path(), &arguments).stdout);
    for name in &names {
        let rows = printed
            .lines()
            .filter(|line| line.starts_with(&format!("{name} ")));
        assert_eq!(rows.count(), 2, "{name}: {printed}");
    }
    assert!(!printed.contains("--all prints"), "{printed}");
}

#[test]
fn a_part_that_is_truncated_is_named_and_the_others_are_simulated() {
    let folder = tempfile::tempdir().unwrap();
    let write =
        |name: &str, content: &str| std::fs::write(folder.path().join(name), content).unwrap();
    write("latency.json", LATENCY);
    write("items-0-000000.jsonl", ITEMS);
    write("requests-0-000000.jsonl", REQUESTS);
    write("items-0-000001.parquet", "PAR1 and some pages");
    write("requests-0-000001.parquet", "PAR1");
    let arguments = ["--strategies", "remote", "--json"];
    let output = run_simulate(folder.path(), &arguments);
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let log = &document["result"]["log"];
    assert_eq!(log["requests"], 2, "{document}");
    let part = log["left_out_parts"][0].as_str().unwrap();
    let expected = "requests-0-000001.parquet (4 bytes) was skipped: items-0-000001.parquet: not a valid Parquet file";
    assert!(part.starts_with(expected), "{part}");
    let warning = format!("warning: {part}\n");
    assert!(to_text(&output.stderr).contains(&warning), "{output:?}");
    let printed = to_text(&run_simulate(folder.path(), &arguments[..2]).stdout);
    assert!(
        printed.contains("requests-0-000001.parquet (4 bytes)"),
        "{printed}"
    );
    let inspected = run_glasscache(&["inspect", folder.path().to_str().unwrap(), "--json"]);
    let document: serde_json::Value = serde_json::from_slice(&inspected.stdout).unwrap();
    assert_eq!(document["result"]["left_out_parts"][0], part);
    std::fs::remove_file(folder.path().join("requests-0-000000.jsonl")).unwrap();
    let (code, line) = run_and_read_failure(folder.path(), &[]);
    assert_eq!(code, Some(4), "{line}");
    assert!(
        line.contains("LOG failed: no part of the log is complete; requests-0"),
        "{line}"
    );
}

#[test]
fn slab_classes_without_a_source() {
    let output = run_glasscache(&[
        "slabs",
        "--factor",
        "2",
        "--chunk",
        "72",
        "--item-max",
        "8m",
        "--json",
    ]);
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["result"]["chunk_sizes"][0], 120);
    assert_eq!(
        document["result"]["chunk_sizes"]
            .as_array()
            .unwrap()
            .last()
            .unwrap(),
        524_288
    );
    assert_eq!(
        run_glasscache(&["slabs", "--factor", "1"]).status.code(),
        Some(2)
    );
    let lines = to_text(&run_glasscache(&["slabs"]).stdout);
    assert!(lines.starts_with("slab class   1: chunk size        96 perslab   10922\n"));
}
