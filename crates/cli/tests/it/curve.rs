//! The output of `curve`, `inspect` and `generate`, as snapshots.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Output};

/// Runs the program in a folder, so that file names in its output are the same everywhere.
fn run_glasscache(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_glasscache"))
        .args(arguments)
        .current_dir(folder)
        .env("COLUMNS", "100")
        .output()
        .unwrap()
}

/// The stdout of the program, which must succeed.
fn run_and_read_stdout(folder: &Path, arguments: &[&str]) -> String {
    let output = run_glasscache(folder, arguments);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_output_for_a_generated_trace_matches_the_snapshots() {
    let folder = tempfile::tempdir().unwrap();
    let generate = ["generate", "zipf", "t.parquet", "--requests", "20000", "--keys", "1000"];
    insta::assert_snapshot!("generate", run_and_read_stdout(folder.path(), &generate));
    insta::assert_snapshot!(
        "inspect",
        run_and_read_stdout(folder.path(), &["inspect", "t.parquet"])
    );
    insta::assert_snapshot!("curve", run_and_read_stdout(folder.path(), &["curve", "t.parquet"]));
    let json_arguments =
        ["curve", "t.parquet", "--policies", "lru,S3FIFO,2q", "--capacities", "10,100", "--json"];
    let mut text = run_and_read_stdout(folder.path(), &json_arguments);
    // Date and machine of the run.
    let run_facts = text.find(",\"run\":").unwrap()..text.rfind("},\"error\"").unwrap();
    text.replace_range(run_facts, "");
    insta::assert_snapshot!("curve_json", text);
}

#[test]
fn the_shape_of_the_json_does_not_depend_on_how_policies_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let generate = ["generate", "zipf", "t.csv", "--requests", "500", "--keys", "50"];
    run_and_read_stdout(folder.path(), &generate);
    for policies in ["common", "none", "all", "lru", "LRU,2q", "common,BeladySize"] {
        let arguments = ["curve", "t.csv", "--policies", policies, "--misses", "20", "--json"];
        let text = run_and_read_stdout(folder.path(), &arguments);
        let document: serde_json::Value = serde_json::from_str(&text).unwrap();
        let mut names: Vec<&String> = document["result"].as_object().unwrap().keys().collect();
        names.sort_unstable();
        assert_eq!(names, ["answer", "lru", "results", "run", "sentence"], "{policies}");
        assert_eq!(document["result"]["answer"]["wanted_miss_ratio"], 0.2, "{policies}");
    }
}

#[test]
fn tuned_and_policies_with_settings_are_replayed_and_the_decisions_printed() {
    let folder = tempfile::tempdir().unwrap();
    let generate = ["generate", "zipf", "t.csv", "--requests", "20000", "--keys", "3000"];
    run_and_read_stdout(folder.path(), &generate);
    let policies = "own,tuned,s4fifo:small=0.2,main=1,lru";
    let arguments =
        ["curve", "t.csv", "--policies", policies, "--capacities", "600", "--decisions"];
    let text = run_and_read_stdout(folder.path(), &arguments);
    assert!(text.contains("What tuned did") && text.contains("small=10%,main=1"), "{text}");
    let json_arguments = [&arguments[..], &["--json"]].concat();
    let document: serde_json::Value =
        serde_json::from_str(&run_and_read_stdout(folder.path(), &json_arguments)).unwrap();
    let rows = document["result"]["results"].as_array().unwrap();
    let names: Vec<&str> = rows.iter().map(|row| row["policy"].as_str().unwrap()).collect();
    let s4fifo = "s4fifo:small=0.2,main=1,ghost-main=0,ghost=0.9,skip=0";
    assert_eq!(names, ["glasscache", "tuned", s4fifo, "LRU"]);
    let decisions = &document["result"]["decisions"][0];
    assert_eq!((&decisions["capacity"], &decisions["misses"]), (&600.into(), &rows[1]["misses"]));
    assert_eq!(decisions["untuned_misses"], rows[0]["misses"]);
    assert!(decisions["switches"].is_array() && decisions["why_unchanged"].is_string());

    let arguments = ["curve", "t.csv", "--policies", "tuned:bytes"];
    let refused = run_glasscache(folder.path(), &arguments);
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(message.contains("tuned:bytes needs the sizes of the objects"), "{message}");

    let refused = run_glasscache(folder.path(), &["curve", "t.csv", "--decisions"]);
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && message.contains("tuned is not replayed"), "{message}");
}

/// The first cell of each row of the table of policies.
fn list_printed_policies(text: &str) -> Vec<&str> {
    let rows = text.lines().skip_while(|line| !line.starts_with("policy "));
    let rows = rows.skip(1).take_while(|line| line.contains("0."));
    rows.filter_map(|line| line.split_whitespace().next()).collect()
}

#[test]
fn the_six_policies_that_miss_least_are_printed_best_first_and_the_others_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let generate = "generate zipf t.csv --requests 20000 --keys 1000";
    run_and_read_stdout(folder.path(), &generate.split(' ').collect::<Vec<_>>());
    let run = |more_arguments: &str| {
        let arguments = format!("curve t.csv{more_arguments}");
        run_and_read_stdout(folder.path(), &arguments.split(' ').collect::<Vec<_>>())
    };
    let text = run("");
    assert!(text.starts_with("LRU's curve bends at"), "{text}");
    let best_policies = list_printed_policies(&text);
    assert_eq!(best_policies.len(), 6, "{text}");
    assert!(text.contains("--all prints 11 more rows."), "{text}");
    let whole_text = run(" --all");
    let all_policies = list_printed_policies(&whole_text);
    assert_eq!((all_policies.len(), &all_policies[..6]), (17, &best_policies[..]), "{whole_text}");
    assert!(!whole_text.contains("--all prints"), "{whole_text}");
    // By the misses at the size that the table names.
    let at_size = whole_text.split(", fewest misses at ").nth(1).unwrap();
    let size = at_size.split(' ').next().unwrap();
    let arguments = ["curve", "t.csv", "--capacities", size, "--json"];
    let document: serde_json::Value =
        serde_json::from_str(&run_and_read_stdout(folder.path(), &arguments)).unwrap();
    let rows = document["result"]["results"].as_array().unwrap();
    let misses_of = |policy: &&str| {
        let row = rows.iter().find(|row| row["policy"] == *policy);
        row.unwrap()["misses"].as_u64().unwrap()
    };
    assert!(all_policies.iter().map(misses_of).is_sorted(), "{whole_text}");
    // The JSON results have every policy in the usual order, and so has the text those that are named.
    assert_eq!((rows.len(), &rows[0]["policy"]), (17, &"LRU".into()));
    let text_of_named_policies = run(" --policies lru,fifo,clock,lfu,sieve,arc,2q,slru");
    assert_eq!(list_printed_policies(&text_of_named_policies).len(), 8, "{text_of_named_policies}");
}

#[test]
fn settings_about_times_are_refused_where_no_time_matters() {
    let folder = tempfile::tempdir().unwrap();
    let write_file =
        |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write_file("t.csv", "time,at,key,size\n0,0,1,5\n1,1,1,5\n");
    write_file("dated.csv", "time,key,ttl\n2026-01-01T00:00:00Z,1,5\n2026-01-01T00:00:01Z,1,5\n");
    write_file("clockless.csv", "key,ttl\n1,2\n1,2\n");
    write_file("sizes.csv", "size,count\n100,5\n");
    for (command_line, expected_message) in [
        ("curve t.csv --time-unit ms", "--time-unit has no effect: t.csv has no TTLs"),
        ("curve t.csv --time-unit s", "--time-unit has no effect: t.csv has no TTLs"),
        ("curve t.csv --server --time-unit ms", "--time-unit has no effect"),
        ("curve t.csv --time-column at", "--time-column has no effect: t.csv has no TTLs"),
        (
            "curve clockless.csv --time-unit ms",
            "--time-unit has no effect: clockless.csv has no times",
        ),
        (
            "curve dated.csv --time-unit ms",
            "--time-unit has no effect: the times of dated.csv state their own unit",
        ),
        ("slabs t.csv --time-unit ms", "--time-unit has no effect"),
        ("inspect t.csv --time-unit ms", "--time-unit has no effect"),
        ("slabs sizes.csv --key-column url", "--key-column has no effect: a histogram"),
    ] {
        let output = run_glasscache(folder.path(), &command_line.split(' ').collect::<Vec<_>>());
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{command_line}: {message}");
        assert!(message.contains(expected_message), "{command_line}: {message}");
    }
}

#[test]
fn help_names_every_flag() {
    let folder = tempfile::tempdir().unwrap();
    for command in ["curve", "inspect", "generate"] {
        let help = run_and_read_stdout(folder.path(), &[command, "--help"]);
        insta::assert_snapshot!(format!("help_{command}"), help);
    }
}

#[test]
fn the_page_is_self_contained() {
    let folder = tempfile::tempdir().unwrap();
    run_and_read_stdout(
        folder.path(),
        &["generate", "zipf", "t.csv", "--requests", "5000", "--keys", "300"],
    );
    run_and_read_stdout(
        folder.path(),
        &["curve", "t.csv", "--sample", "100", "--html", "curve.html"],
    );
    let page = std::fs::read_to_string(folder.path().join("curve.html")).unwrap();
    assert!(
        page.len() < 700_000
            && page.contains("<svg")
            && page.contains("miss ratio (misses / requests)")
    );
    assert!(!page.contains("src=") && !page.contains("http://") && !page.contains("https://"));
}

#[test]
fn an_invalid_trace_exits_with_code_4_and_one_error_line() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("t.csv"), "key,size\n1,2\n2,-3\n").unwrap();
    let output = run_glasscache(folder.path(), &["curve", "t.csv", "--mode", "bytes"]);
    let sentence = "glasscache: t.csv, row 2, column size: expected a whole number from 0 to 4294967295, found \"-3\"\n";
    assert_eq!(
        (output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()),
        (Some(4), sentence)
    );
    let cases = [
        ("key;size\n1;2\n", "t.csv: the header line names no column \"key\": \"key;size\""),
        ("", "t.csv: is empty"),
        ("key\n1\n\n", ""),
        ("\u{feff}key\r\n1\r\n", ""),
    ];
    for (text, expected_message) in cases {
        std::fs::write(folder.path().join("t.csv"), text).unwrap();
        let output = run_glasscache(folder.path(), &["curve", "t.csv", "--policies", "lru"]);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        let code = if expected_message.is_empty() { Some(0) } else { Some(4) };
        assert_eq!(output.status.code(), code, "{stderr}");
        assert!(stderr.contains(expected_message), "{stderr}");
    }
    std::fs::create_dir(folder.path().join("folder.csv")).unwrap();
    for command in ["curve", "slabs"] {
        let output = run_glasscache(folder.path(), &[command, "folder.csv"]);
        assert_eq!(output.status.code(), Some(4));
        assert!(String::from_utf8_lossy(&output.stderr).contains("is a folder"));
    }
    for wrong_arguments in [
        ["--capacities", "0%"],
        ["--capacities", "0"],
        ["--sample", "0"],
        ["--capacities", "1g"],
        ["--at", "64k"],
    ] {
        let output = run_glasscache(
            folder.path(),
            &["curve", "t.csv", wrong_arguments[0], wrong_arguments[1]],
        );
        assert_eq!(output.status.code(), Some(2), "{wrong_arguments:?}");
    }
    let missing_file_output = run_glasscache(folder.path(), &["inspect", "none.parquet"]);
    assert_eq!(missing_file_output.status.code(), Some(3));
    let unknown_policy_output =
        run_glasscache(folder.path(), &["curve", "t.csv", "--policies", "mru"]);
    assert_eq!(unknown_policy_output.status.code(), Some(2));
}

#[test]
fn the_curve_over_m_counts_headers_and_slab_loss_and_names_the_cheapest_size() {
    let folder = tempfile::tempdir().unwrap();
    let mut trace = String::from("key,size\n");
    for index in 0..40_000_u32 {
        writeln!(trace, "{},1000", index * 7919 % 20_000).unwrap();
    }
    std::fs::write(folder.path().join("t.csv"), trace).unwrap();
    let run = |more_arguments: &[&str]| {
        let base_arguments = ["curve", "t.csv", "--server", "--capacities", "8m,16m,32m,64m"];
        run_and_read_stdout(folder.path(), &[&base_arguments, more_arguments].concat())
    };
    let document: serde_json::Value = serde_json::from_str(&run(&["--json"])).unwrap();
    let rows = document["result"]["server"].as_array().unwrap();
    assert_eq!(rows.len(), 4);
    for row in rows {
        // 1,000 bytes of value, 30 of key, 50 to 56 of header, in chunks of 1,184 bytes: 885 a page.
        let m_mib = row["m_bytes"].as_u64().unwrap() >> 20;
        assert_eq!(row["memcached_items"].as_u64(), Some(m_mib * 885));
        let ours = row["glasscache_items"].as_u64().unwrap();
        assert!((m_mib * 885..m_mib * 1000).contains(&ours), "{row}");
    }
    // All 20,000 objects fit into 32 MiB: each misses once, and 64 MiB change nothing.
    assert_eq!(rows[2]["glasscache_miss_ratio"], 0.5);
    assert_eq!(rows[2]["memcached_miss_ratio"], 0.5);
    assert!(rows[0]["glasscache_miss_ratio"].as_f64() > Some(0.5));
    let document_with_costs: serde_json::Value =
        serde_json::from_str(&run(&["--cost-per-gb", "1", "--miss-cost-ms", "10", "--json"]))
            .unwrap();
    assert_eq!(document_with_costs["result"]["cheapest_m_bytes"], 32 << 20);
    let text = run(&["--cost-per-gb", "1000000", "--miss-cost-ms", "1"]);
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("The cheapest is -m 8."), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    for wrong_arguments in [
        &["curve", "t.csv", "--cost-per-gb", "1", "--miss-cost-ms", "1"][..],
        &["curve", "t.csv", "--server", "--policies", "lru"],
        &["curve", "t.csv", "--key-bytes", "20"],
        &["curve", "t.csv", "--server", "--capacities", "1m"],
    ] {
        let output = run_glasscache(folder.path(), wrong_arguments);
        assert_eq!(output.status.code(), Some(2), "{wrong_arguments:?}");
    }
    let bytes_arguments = ["curve", "t.csv", "--mode", "bytes", "--policies", "none"];
    let cost_arguments = ["--cost-per-gb", "1", "--miss-cost-ms", "10"];
    let text =
        run_and_read_stdout(folder.path(), &[&bytes_arguments[..], &cost_arguments].concat());
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("the cheapest size is"), "{text}");
}

/// The miss ratios that `curve` prints for LRU at sizes of 1 and 2 objects.
fn read_lru_ratios(folder: &Path, arguments: &[&str]) -> Vec<String> {
    let mut all_arguments = vec!["curve", "--policies", "lru", "--capacities", "1,2", "--json"];
    all_arguments.extend(arguments);
    let document: serde_json::Value =
        serde_json::from_str(&run_and_read_stdout(folder, &all_arguments)).unwrap();
    let text = document["result"]["results"].to_string();
    let ratios = text.split("\"miss_ratio\":").skip(1);
    ratios.map(|rest| rest.split([',', '}']).next().unwrap_or_default().to_owned()).collect()
}

#[test]
fn data_of_other_programs_gives_the_curve_of_its_keys() {
    let folder = tempfile::tempdir().unwrap();
    let write_file =
        |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write_file("own.csv", "key\n1\n2\n1\n1\n");
    write_file("urls.csv", "when,url\n1,/a\n2,\"/b,c\"\n3,/a\n4,/a\n");
    write_file("access.log", "GET /a 200\nstarted\nGET /b 200\nGET /a 200\nHEAD /a 200\n");
    let own_ratios = read_lru_ratios(folder.path(), &["own.csv"]);
    assert_eq!(own_ratios, ["0.75", "0.5"]);
    let with_named_columns = ["urls.csv", "--key-column", "url"];
    assert_eq!(read_lru_ratios(folder.path(), &with_named_columns), own_ratios);
    let with_pattern = ["access.log", "--regex", r"^(?P<op>\w+) (?P<key>/\S+)"];
    assert_eq!(read_lru_ratios(folder.path(), &with_pattern), own_ratios);
}

#[test]
fn ttls_are_honoured_in_the_unit_of_the_times() {
    let folder = tempfile::tempdir().unwrap();
    let write_file =
        |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write_file(
        "t.csv",
        "time,key,op,ttl\n0,1,set,2\n1000,1,get,\n1500,1,get,\n1999,1,get,\n2000,1,get,\n",
    );
    // Seconds: the item ends at 2, and the miss at 1999 stores it until 2001. Milliseconds: it ends at 2000.
    for (unit, ratio) in [("s", "0.75"), ("ms", "0.25")] {
        let arguments = ["t.csv", "--time-unit", unit];
        assert_eq!(read_lru_ratios(folder.path(), &arguments), [ratio, ratio], "{unit}");
    }
    write_file("t.csv", "key,ttl\n1,2\n1,2\n");
    let output = run_glasscache(folder.path(), &["curve", "t.csv", "--policies", "lru"]);
    let note = "t.csv has no times, so the TTLs of 2 rows are not honoured";
    assert!(String::from_utf8_lossy(&output.stderr).contains(note));
}

#[test]
fn flags_that_do_not_fit_together_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("t.csv"), "key\n1\n").unwrap();
    for (arguments, expected_message) in [
        (&["--format", "watch", "--key-column", "url"][..], "have no columns"),
        (&["--regex", "(?P<key>x)", "--format", "csv"], "leave out --format"),
        (&["--regex", "(?P<url>x)"], "group \"url\""),
        (&["--format", "watch", "--time-unit", "ms"], "leave out --time-unit"),
    ] {
        let all_arguments: Vec<&str> =
            ["curve", "t.csv"].iter().chain(arguments).copied().collect();
        let output = run_glasscache(folder.path(), &all_arguments);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains(expected_message), "{message}");
    }
}
