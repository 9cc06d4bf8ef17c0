//! The output of `glasscache simulate` and `glasscache slabs`: help, tables, JSON, exit codes.

use std::path::Path;
use std::process::{Command, Output, Stdio};

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
    for (name, content) in
        [("items.jsonl", items), ("requests.jsonl", requests), ("latency.json", LATENCY)]
    {
        std::fs::write(folder.path().join(name), content).unwrap();
    }
    folder
}

fn run_simulate(folder: &Path, more_arguments: &[&str]) -> Output {
    let folder = folder.to_str().unwrap();
    run_glasscache(&[&["simulate", folder], more_arguments].concat())
}

/// The exit code and the first line of stderr, without the name of the folder.
fn run_and_read_failure(folder: &Path, more_arguments: &[&str]) -> (Option<i32>, String) {
    let output = run_simulate(folder, more_arguments);
    let stderr = to_text(&output.stderr).replace(folder.to_str().unwrap(), "LOG");
    (output.status.code(), stderr.lines().next().unwrap_or_default().to_owned())
}

fn run_and_read_exit_code(folder: &Path, more_arguments: &[&str]) -> Option<i32> {
    let (exit_code, _) = run_and_read_failure(folder, more_arguments);
    exit_code
}

#[test]
fn the_help_of_both_commands_matches_its_snapshot() {
    insta::assert_snapshot!(
        "simulate_help",
        to_text(&run_glasscache(&["simulate", "--help"]).stdout)
    );
    insta::assert_snapshot!("slabs_help", to_text(&run_glasscache(&["slabs", "--help"]).stdout));
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
    let output = run_simulate(folder.path(), &["--strategies", "remote,subtree:2", "--json"]);
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
fn decoding_is_a_column_of_every_strategy_and_part_of_the_forecast() {
    let with_calls = |line: &str| {
        let wait = r#""calls":[1,1,1],"wait_us":660,"decode_us":560,"writes":0"#;
        line.replace('}', &format!(",{wait}}}")).replace(r#","a","c"]"#, r#","a"]"#)
    };
    let requests: String = REQUESTS.lines().map(|line| with_calls(line) + "\n").collect();
    let folder = write_log(ITEMS, &requests);
    let text = to_text(&run_simulate(folder.path(), &["--strategies", "remote,lru:2"]).stdout);
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("Under every strategy decoding takes another 0.56 ms"), "{text}");
    assert!(words.contains("keys added ms decode ms p95 >=50 %"), "{text}");
    assert!(words.contains("lru:2 6.98 KiB 1.00 1.00 2.000 0.560"), "{text}");
    // Measured: 0.66 ms, decoding included.
    assert!(words.contains("as recorded 0 B 3.00 3.00 0.100 0.560"), "{text}");
    assert!(!words.contains("has no decoding times"), "{text}");
    let output = run_simulate(folder.path(), &["--strategies", "remote,lru:2", "--json"]);
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let strategies = &document["result"]["strategies"];
    let second_half = &strategies["lru:2"]["second_half"];
    assert_eq!(
        (&second_half["added_ns"], &second_half["decode_ns"]),
        (&2_000_000.into(), &560_000.into())
    );
    assert_eq!(second_half["cache_ns"], 2_560_000);
    let recorded = &strategies["as recorded"]["second_half"];
    assert_eq!((&recorded["added_ns"], &recorded["cache_ns"]), (&660_000.into(), &660_000.into()));

    let old_folder = write_log(ITEMS, REQUESTS);
    let text = to_text(&run_simulate(old_folder.path(), &["--strategies", "remote,lru:2"]).stdout);
    assert!(!text.contains("decode ms") && text.contains("has no decoding times"), "{text}");
    let output = run_simulate(old_folder.path(), &["--strategies", "remote", "--json"]);
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let all = &document["result"]["strategies"]["remote"]["all"];
    assert_eq!((&all["decode_ns"], &all["cache_ns"]), (&serde_json::Value::Null, &all["added_ns"]));
}

#[test]
fn a_search_reports_that_requests_waited_for_something_else_while_they_were_recorded() {
    let search_of = |wait_us: u32| {
        let line_of = |number: u32| {
            format!(
                r#"{{"request":{number},"time_us":{number},"instance":0,"base_us":10000,"page":null,"items":["a","b"],"calls":[1,1],"wait_us":{wait_us},"decode_us":500,"writes":1}}"#
            ) + "\n"
        };
        let requests: String = (0..8).map(line_of).collect();
        let folder = write_log(ITEMS, &requests);
        let output = run_simulate(folder.path(), &["--search", "--memory", "1M"]);
        assert!(output.status.success(), "{}", to_text(&output.stderr));
        to_text(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    // By the table a request waits 2 ms.
    let text = search_of(60_500);
    assert!(text.contains("The recorded requests waited 60.00 ms, besides"), "{text}");
    assert!(search_of(3_500).contains("The recorded requests waited 3.00 ms, besides"));
    assert!(!search_of(2_900).contains("The recorded requests waited"));
}

#[test]
fn a_fixed_set_names_its_items_and_strategies_have_words() {
    let folder = write_log(ITEMS, REQUESTS);
    let output = run_simulate(folder.path(), &["--strategies", "remote,fixed:2", "--json"]);
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let result = &document["result"];
    let fixed = &result["fixed_set"];
    assert_eq!((&fixed["strategy"], &fixed["count"]), (&"fixed:2".into(), &2.into()));
    let keys: Vec<&str> = fixed["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["key"].as_str().unwrap())
        .collect();
    assert_eq!(keys, ["a", "b"], "each is used by the one request of the first half");
    // One call of 1,000 bytes takes 1 ms.
    assert_eq!(
        (&fixed["items"][0]["saved_ms"], &fixed["items"][0]["bytes"]),
        (&1.0.into(), &1000.into())
    );
    assert_eq!(result["strategies"]["fixed:2"]["words"], "keep 2 items (2.46 KiB)");
    assert_eq!(result["log"]["items_of_unknown_size"], 0);
    let table = to_text(&run_simulate(folder.path(), &["--strategies", "remote,fixed:2"]).stdout);
    assert!(table.contains("What `fixed:2` keeps") && table.contains("In words: "), "{table}");
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
    assert!(strategies.keys().all(|name| !name.contains("children") && !name.contains("subtree")));
    assert_eq!(document["result"]["log"]["items_of_unknown_size"], 1);
    let table = to_text(&run_simulate(folder.path(), &[]).stdout);
    assert!(
        table.contains("No item has a parent") && table.contains("1 used item has an unknown size"),
        "{table}"
    );
}

#[test]
fn excluded_routes_do_not_affect_the_result() {
    let three_requests = format!(
        "{REQUESTS}{}",
        REQUESTS.lines().next().unwrap().replace("\"time_us\":1", "\"time_us\":3")
    );
    let folder = write_log(ITEMS, &format!("{three_requests}\n"));
    let output =
        run_simulate(folder.path(), &["--strategies", "remote", "--exclude", "page", "--json"]);
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["result"]["log"]["requests"], 2);
    let (exit_code, error_line) = run_and_read_failure(folder.path(), &["--exclude", "nowhere"]);
    assert_eq!(
        (exit_code, error_line.as_str()),
        (Some(2), "glasscache: no request has the route `nowhere` (--exclude)")
    );
}

#[test]
fn a_truncated_log_is_read_up_to_its_last_complete_request() {
    let folder = write_log(ITEMS, &format!("{REQUESTS}{{\"request\":2,\"time_us\":3,\"inst"));
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
        (ITEMS.to_owned(), REQUESTS.replace("\"time_us\":2", "\"time_us\":0")),
        (ITEMS.to_owned(), REQUESTS.replace("\"instance\":0", "\"instance\":\"x\"")),
        (ITEMS.to_owned(), REQUESTS.lines().next().unwrap().to_owned() + "\n"),
        (ITEMS.to_owned(), String::new()),
        ("PK\u{3}\u{4}".to_owned(), REQUESTS.to_owned()),
    ];
    let error_lines: Vec<String> = cases
        .iter()
        .map(|(items, requests)| {
            let (exit_code, error_line) =
                run_and_read_failure(write_log(items, requests).path(), &[]);
            assert_eq!(exit_code, Some(4), "{error_line}");
            error_line
        })
        .collect();
    insta::assert_snapshot!("wrong_logs", error_lines.join("\n"));
}

#[test]
fn usage_errors_and_missing_files_have_different_exit_codes() {
    let folder = write_log(ITEMS, REQUESTS);
    let (exit_code, error_line) = run_and_read_failure(folder.path(), &["--strategies", "lfu:3"]);
    assert_eq!(exit_code, Some(2));
    assert!(
        error_line.starts_with("glasscache: unknown strategy `lfu:3`: remote, lru:N"),
        "{error_line}"
    );
    assert_eq!(run_and_read_exit_code(folder.path(), &["--draw"]), Some(4));
    std::fs::remove_file(folder.path().join("latency.json")).unwrap();
    assert_eq!(run_and_read_exit_code(folder.path(), &[]), Some(3));
    assert_eq!(run_and_read_exit_code(&folder.path().join("nothing"), &[]), Some(3));
}

fn write_log_of_40_requests() -> TempDir {
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
    write_log(ITEMS, &requests)
}

#[test]
fn search_prints_the_front_and_saves_a_strategy_file() {
    let folder = write_log_of_40_requests();
    let strategy_path = folder.path().join("best.strategy");
    let output = run_simulate(
        folder.path(),
        &["--search", "--memory", "20k", "--json", "--save", strategy_path.to_str().unwrap()],
    );
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["result"]["tried"], 217);
    let front = document["result"]["front"].as_array().unwrap();
    assert!(front.len() > 1 && front[0]["memory_bytes"] == 0);
    assert!(
        std::fs::read_to_string(strategy_path)
            .unwrap()
            .starts_with("glasscache-strategy 1\nstrategy ")
    );
}

#[test]
fn policies_that_no_client_has_are_compared_and_never_saved() {
    let folder = write_log_of_40_requests();
    let saved = folder.path().join("best.strategy");
    let simulated = ["s4fifo:3:small=0.3,main=1", "tuned:3"];
    let strategies = format!("lru:1,{}", simulated.join(","));
    let arguments = ["--strategies", &strategies, "--json", "--save", saved.to_str().unwrap()];
    let output = run_simulate(folder.path(), &arguments);
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let added_ns =
        |name: &str| document["result"]["strategies"][name]["second_half"]["added_ns"].as_u64();
    for notation in simulated {
        assert!(added_ns(notation).unwrap() < added_ns("lru:1").unwrap(), "{document}");
    }
    let sentence = document["result"]["sentence"].as_str().unwrap();
    assert!(
        sentence.contains("no other strategy here that a client can run adds less time"),
        "{sentence}"
    );
    let file = std::fs::read_to_string(&saved).unwrap();
    assert!(file.starts_with("glasscache-strategy 1\nstrategy lru:1\n"), "{file}");
    let arguments = ["--strategies", "tuned:3,s4fifo:3", "--save", saved.to_str().unwrap()];
    assert_eq!(
        run_and_read_failure(folder.path(), &arguments),
        (Some(2), "glasscache: strategy `tuned:3` is for the simulator alone, no client has its policy; choose lru, lru-bytes or s3fifo (--save)".to_owned())
    );
}

#[test]
fn files_are_written_although_the_output_is_not_read() {
    let folder = write_log_of_40_requests();
    for arguments in [&["--strategies", "lru:1"][..], &["--search", "--memory", "20k"]] {
        let (saved, page) = (folder.path().join("best.strategy"), folder.path().join("page.html"));
        let mut child = Command::new(env!("CARGO_BIN_EXE_glasscache"))
            .args(["simulate", folder.path().to_str().unwrap()])
            .args(arguments)
            .args(["--save".as_ref(), saved.as_os_str(), "--html".as_ref(), page.as_os_str()])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        child.wait().unwrap();
        assert!(saved.exists() && page.exists(), "{arguments:?}");
        std::fs::remove_file(saved).unwrap();
        std::fs::remove_file(page).unwrap();
    }
}

#[test]
fn pages_are_complete_and_self_contained() {
    let folder = write_log(ITEMS, REQUESTS);
    let page_path = folder.path().join("page.html");
    run_simulate(folder.path(), &["--html", page_path.to_str().unwrap()]);
    let html = std::fs::read_to_string(page_path).unwrap();
    assert!(html.ends_with("</html>\n") && html.len() < 700_000);
    assert!(!html.contains("http") && !html.contains("src="));
}

#[test]
fn prints_a_plan_of_a_histogram_and_names_the_row_that_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let sizes_path = folder.path().join("sizes.csv");
    let rows: Vec<String> =
        (1..200).map(|number| format!("{},{}\n", number * 137, 20_000 / number)).collect();
    let rows = rows.concat();
    std::fs::write(&sizes_path, format!("size,count\n{rows}")).unwrap();
    let sizes_argument = sizes_path.to_str().unwrap();
    let output = run_glasscache(&["slabs", sizes_argument, "--memory", "64m", "--classes", "12"]);
    assert_eq!(output.status.code(), Some(0), "{}", to_text(&output.stderr));
    insta::assert_snapshot!("slab_plan", to_text(&output.stdout));
    std::fs::write(&sizes_path, "size,count\n100,5\n200,many\n").unwrap();
    let output = run_glasscache(&["slabs", sizes_argument]);
    assert_eq!(output.status.code(), Some(4));
    let error_line = to_text(&output.stderr).replace(sizes_argument, "FILE");
    assert_eq!(
        error_line.trim_end(),
        "glasscache: FILE, row 2, column count: expected a whole number, found \"many\""
    );
}

#[test]
fn a_small_memory_holds_what_the_first_pages_of_the_classes_hold() {
    let folder = tempfile::tempdir().unwrap();
    let sizes_path = folder.path().join("sizes.csv");
    let rows: Vec<String> =
        (1..200).map(|number| format!("{},{}\n", number * 137, 20_000 / number)).collect();
    std::fs::write(&sizes_path, format!("size,count\n{}", rows.concat())).unwrap();
    let sizes_argument = sizes_path.to_str().unwrap();
    let plan_slabs = |memory: &str| {
        let output = run_glasscache(&["slabs", sizes_argument, "--memory", memory, "--json"]);
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        document["result"].clone()
    };
    let (small, large) = (plan_slabs("8m"), plan_slabs("64m"));
    let items_that_fit =
        |result: &serde_json::Value| result["options"][0]["items_that_fit"].as_u64();
    // 21 classes are in use: each has its first page, whatever -m is.
    assert_eq!(small["options"][0]["used_classes"], 21);
    assert!(items_that_fit(&small).map(|items| items * 4) > small["items_in_segments"].as_u64());
    assert!(items_that_fit(&small) < items_that_fit(&large), "{small}");
    let output = run_glasscache(&["slabs", sizes_argument, "--memory", "8m"]);
    let printed = to_text(&output.stdout);
    let note = "memcached gives each class its first page even where -m is used up";
    let printed = printed.replace('\n', " ");
    assert!(printed.contains("in 8.00 MiB, taking 62.0 MiB (today 21.0 MiB)"), "{printed}");
    assert!(printed.contains(note), "{printed}");
}

#[test]
fn classes_are_not_recommended_from_few_items() {
    let folder = tempfile::tempdir().unwrap();
    let sizes_path = folder.path().join("sizes.csv");
    for (item_count, is_enough) in [(505, false), (100_000, true)] {
        std::fs::write(&sizes_path, format!("size,count\n300,{item_count}\n")).unwrap();
        let output = run_glasscache(&["slabs", sizes_path.to_str().unwrap()]);
        let printed = to_text(&output.stdout).replace('\n', " ");
        assert_eq!(!printed.contains("Too little data: 505 items"), is_enough, "{printed}");
        assert_eq!(printed.contains("slab_sizes="), is_enough, "{printed}");
    }
}

#[test]
fn the_sentence_comes_first_and_then_six_rows_of_each_table() {
    let folder = tempfile::tempdir().unwrap();
    let site_folder = folder.path().join("site");
    let site = site_folder.to_str().unwrap();
    let generated =
        run_glasscache(&["generate", "topic-tree", site, "--requests", "2000", "--items", "300"]);
    assert_eq!(generated.status.code(), Some(0));
    let sizes_path = folder.path().join("sizes.csv");
    let rows: Vec<String> = (1..100).map(|number| format!("{},9\n", number * 300)).collect();
    std::fs::write(&sizes_path, format!("size,count\n{}", rows.concat())).unwrap();
    let sizes = sizes_path.to_str().unwrap();
    for (arguments, sentence, hides_rows) in [
        (&["simulate", site][..], "Under `remote`", true),
        (&["simulate", site, "--all"], "Under `remote`", false),
        (
            &["simulate", site, "--strategies", "remote,lru:1,lru:2,lru:3,lru:4,lru:5,lru:6"],
            "Under `remote`",
            false,
        ),
        (&["simulate", site, "--search", "--memory", "64k"], "Within 64k", true),
        (&["slabs", sizes], "% of the memory holds no item today", true),
        (&["slabs", sizes, "--all"], "% of the memory holds no item today", false),
        (&["inspect", site], "2,000 requests read", true),
        (&["inspect", site, "--all"], "2,000 requests read", false),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_glasscache"))
            .args(arguments)
            .env("COLUMNS", "80")
            .output()
            .unwrap();
        let printed = to_text(&output.stdout);
        let first_paragraph = printed.split("\n\n").next().unwrap_or_default();
        assert!(first_paragraph.replace('\n', " ").contains(sentence), "{printed}");
        assert_eq!(printed.contains("--all prints"), hides_rows, "{printed}");
        assert!(
            printed.lines().all(|line| line.chars().count() <= 80 || line.starts_with("To copy: ")),
            "{printed}"
        );
    }
}

#[test]
fn the_table_of_strategies_is_best_first_and_wide_on_request() {
    let folder = write_log(ITEMS, REQUESTS);
    let arguments = ["--strategies", "remote,lru:2,children"];
    let narrow_text = to_text(&run_simulate(folder.path(), &arguments).stdout);
    let find_row = |name: &str| narrow_text.find(&format!("\n{name} ")).unwrap();
    assert!(
        find_row("lru:2") < find_row("children") && find_row("children") < find_row("remote"),
        "{narrow_text}"
    );
    assert!(!narrow_text.contains(">=100 %"), "{narrow_text}");
    let wide_arguments = [&arguments[..], &["--wide"]].concat();
    let wide_text = to_text(&run_simulate(folder.path(), &wide_arguments).stdout);
    assert!(wide_text.contains(">=100 %") && wide_text.contains("used keys"), "{wide_text}");
}

#[test]
fn routes_of_a_log_without_routes_are_refused() {
    let requests = REQUESTS.replace("\"route\":\"home\",", "").replace("\"route\":\"page\",", "");
    let folder = write_log(ITEMS, &requests);
    let (exit_code, error_line) = run_and_read_failure(folder.path(), &["--by", "route"]);
    assert_eq!(exit_code, Some(2), "{error_line}");
    assert!(error_line.contains("--by route has no effect"), "{error_line}");
}

#[test]
fn strategies_that_are_named_are_all_printed_in_each_table_of_strategies() {
    let folder = write_log(ITEMS, REQUESTS);
    let mut latency: serde_json::Value = serde_json::from_str(LATENCY).unwrap();
    let percentiles =
        r#"{"5":1110,"25":1240,"50":1350,"75":1510,"90":1750,"95":2020,"99":3200,"99.9":7400}"#;
    latency["single_pct"] = serde_json::json!({ "1000": serde_json::from_str::<serde_json::Value>(percentiles).unwrap() });
    std::fs::write(folder.path().join("latency.json"), latency.to_string()).unwrap();
    let notations: Vec<String> = (1..8).map(|items| format!("lru:{items}")).collect();
    let arguments = ["--draw", "--strategies", &notations.join(",")];
    let printed = to_text(&run_simulate(folder.path(), &arguments).stdout);
    for notation in &notations {
        let rows = printed.lines().filter(|line| line.starts_with(&format!("{notation} ")));
        assert_eq!(rows.count(), 2, "{notation}: {printed}");
    }
    assert!(!printed.contains("--all prints"), "{printed}");
}

#[test]
fn a_part_that_is_truncated_is_named_and_the_others_are_simulated() {
    let folder = tempfile::tempdir().unwrap();
    let write_file =
        |name: &str, content: &str| std::fs::write(folder.path().join(name), content).unwrap();
    write_file("latency.json", LATENCY);
    write_file("items-0-000000.jsonl", ITEMS);
    write_file("requests-0-000000.jsonl", REQUESTS);
    write_file("items-0-000001.parquet", "PAR1 and some pages");
    write_file("requests-0-000001.parquet", "PAR1");
    let arguments = ["--strategies", "remote", "--json"];
    let output = run_simulate(folder.path(), &arguments);
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let log = &document["result"]["log"];
    assert_eq!(log["requests"], 2, "{document}");
    let left_out_part = log["left_out_parts"][0].as_str().unwrap();
    let expected = "requests-0-000001.parquet (4 bytes) was skipped: items-0-000001.parquet: not a valid Parquet file";
    assert!(left_out_part.starts_with(expected), "{left_out_part}");
    let warning = format!("warning: {left_out_part}\n");
    assert!(to_text(&output.stderr).contains(&warning), "{output:?}");
    let printed = to_text(&run_simulate(folder.path(), &arguments[..2]).stdout);
    assert!(printed.contains("requests-0-000001.parquet (4 bytes)"), "{printed}");
    let inspected = run_glasscache(&["inspect", folder.path().to_str().unwrap(), "--json"]);
    let document: serde_json::Value = serde_json::from_slice(&inspected.stdout).unwrap();
    assert_eq!(document["result"]["left_out_parts"][0], left_out_part);
    std::fs::remove_file(folder.path().join("requests-0-000000.jsonl")).unwrap();
    let (exit_code, error_line) = run_and_read_failure(folder.path(), &[]);
    assert_eq!(exit_code, Some(4), "{error_line}");
    assert!(
        error_line.contains("LOG failed: no part of the log is complete; requests-0"),
        "{error_line}"
    );
}

#[test]
fn prints_the_slab_classes_when_no_sizes_are_given() {
    let output =
        run_glasscache(&["slabs", "--factor", "2", "--chunk", "72", "--item-max", "8m", "--json"]);
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["result"]["chunk_sizes"][0], 120);
    assert_eq!(document["result"]["chunk_sizes"].as_array().unwrap().last().unwrap(), 524_288);
    assert_eq!(run_glasscache(&["slabs", "--factor", "1"]).status.code(), Some(2));
    let printed = to_text(&run_glasscache(&["slabs"]).stdout);
    assert!(printed.starts_with("slab class   1: chunk size        96 perslab   10922\n"));
}
