//! Every page in a browser: drawn by Chromium from the disk, wide, on a phone and on paper, in light and dark mode.
//!
//! A page must print nothing to the console, request nothing, fit its window, and be legible; its buttons must work.
//! Without Chromium these tests print how many were skipped, and the pages are checked as text only.
//! `GLASSCACHE_TEST_SCREENSHOTS=FOLDER` keeps a picture of each view (`make screenshots`).

mod browser;
#[expect(dead_code, reason = "the tests of commands use more of it")]
#[path = "../it/server.rs"]
mod server;

use std::path::{Path, PathBuf};
use std::process::Command;

use browser::{Browser, View};

const PAGE_BYTES_MAX: usize = 700_000;

/// The sizes and modes in which each page is looked at; A4 with margins of 14 mm has 688 pixels.
const VIEWS: [(&str, View); 5] = [
    ("wide-light", new_view(1280, false, false)),
    ("wide-dark", new_view(1280, true, false)),
    ("phone-light", new_view(390, false, false)),
    ("phone-dark", new_view(390, true, false)),
    ("print", new_view(688, false, true)),
];

/// Faults that a page has in any view: too wide, too little contrast, text outside of its chart.
const CHECKS: &str = include_str!("checks.js");

const fn new_view(width: u32, is_dark: bool, is_print: bool) -> View {
    View { width, is_dark, is_print }
}

fn run_glasscache(folder: &Path, command_line: &str) {
    let output = Command::new(env!("CARGO_BIN_EXE_glasscache"))
        .args(command_line.split(' '))
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(output.status.success(), "{command_line}: {output:?}");
}

fn write_curve(folder: &Path) {
    run_glasscache(folder, "generate zipf keys.csv --requests 5000 --keys 300 --size 2000");
    run_glasscache(folder, "curve keys.csv --html curve.html");
}

fn write_slabs(folder: &Path) {
    let sizes = "size,count\n100,5000\n300,7000\n700,1000\n2000,2000\n5000,900\n90000,300\n";
    std::fs::write(folder.join("sizes.csv"), sizes).unwrap();
    run_glasscache(folder, "slabs sizes.csv --html slabs.html");
}

/// Writes each kind of page and returns their names.
fn write_pages(folder: &Path) -> Vec<&'static str> {
    let run = |command_line: &str| run_glasscache(folder, command_line);
    write_curve(folder);
    write_slabs(folder);
    run("generate topic-tree site --requests 2000 --items 300");
    std::fs::create_dir(folder.join("files")).unwrap();
    for number in 0..30 {
        let text = format!("{{\"name\": \"value {number}\"}}\n").repeat(20 + number);
        std::fs::write(folder.join(format!("files/{number}.json")), text).unwrap();
    }
    run("curve keys.csv --policies none --sample 100 --html sampled.html");
    run("curve keys.csv --server --capacities 2m,4m,8m,64m --html server.html");
    run("inspect site --html inspect.html");
    run("simulate site --by route --draw --html simulate.html");
    run("simulate site --search --memory 64k --html search.html");
    run("simulate site --strategies fixed:20+lru:20+children --save best.strategy");
    let server = server::Server::start(&[]);
    // The wide `--within` lets the forecast hold, however long the calls take on a busy machine.
    run(&format!(
        "replay site --target 127.0.0.1:{} --strategy best.strategy --fill --forecast forecast.json --within 1000000 --html replay.html",
        server.port()
    ));
    run("bench --rate 1000 --for 3s --warm-up 100ms --keys 200 --html bench.html");
    run("profile --calls 300 --sizes 1,100,10000 --widths 1,10 --html profile.html");
    run("codec files --html codec.html");
    std::fs::create_dir(folder.join("results")).unwrap();
    for (name, command_line) in [("curve", "curve keys.csv"), ("slabs", "slabs sizes.csv")] {
        let output = Command::new(env!("CARGO_BIN_EXE_glasscache"))
            .args(command_line.split(' '))
            .arg("--json")
            .current_dir(folder)
            .output()
            .unwrap();
        std::fs::write(folder.join(format!("results/{name}.json")), output.stdout).unwrap();
    }
    run("report results --html report.html");
    vec![
        "curve.html",
        "sampled.html",
        "server.html",
        "slabs.html",
        "inspect.html",
        "simulate.html",
        "search.html",
        "replay.html",
        "bench.html",
        "profile.html",
        "codec.html",
        "report.html",
    ]
}

/// The browser, or a note that says how many tests are skipped without one.
fn start_browser(test_count: usize) -> Option<Browser> {
    let program = browser::find_browser();
    if program.is_none() {
        eprintln!("no Chromium is installed: {test_count} browser test skipped");
    }
    program.map(|program| Browser::start(&program))
}

fn find_screenshot_folder() -> Option<PathBuf> {
    let folder = PathBuf::from(std::env::var_os("GLASSCACHE_TEST_SCREENSHOTS")?);
    std::fs::create_dir_all(&folder).unwrap();
    Some(folder)
}

#[test]
fn pages_are_small_have_no_addresses_and_name_their_origin() {
    let folder = tempfile::tempdir().unwrap();
    for page in write_pages(folder.path()) {
        let text = std::fs::read_to_string(folder.path().join(page)).unwrap();
        assert!(text.len() <= PAGE_BYTES_MAX, "{page}: {} bytes", text.len());
        for address in ["http:", "https:", "src=", "@import", "url("] {
            assert!(!text.contains(address), "{page} has {address}");
        }
        for origin in ["<dt>command</dt>", "<dt>version</dt>", "<dt>date</dt>"] {
            assert!(text.contains(origin), "{page} has no {origin}");
        }
        let has_input = !["bench.html", "profile.html", "report.html"].contains(&page);
        assert_eq!(text.contains(", SHA-256 "), has_input, "{page}");
    }
}

#[test]
fn pages_are_legible_in_every_view_without_messages_or_requests() {
    let Some(mut browser) = start_browser(1) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let screenshot_folder = find_screenshot_folder();
    for page in write_pages(folder.path()) {
        let page_path = folder.path().join(page);
        for (view_name, view) in VIEWS {
            browser.open(&page_path, view);
            let faults = browser.evaluate(CHECKS);
            assert_eq!(faults, serde_json::json!([]), "{page} {view_name}");
            assert_eq!(browser.take_page_problems(), Vec::<String>::new(), "{page} {view_name}");
            if let Some(screenshot_folder) = &screenshot_folder {
                browser.write_screenshot(
                    &screenshot_folder.join(page.replace(".html", &format!("-{view_name}.png"))),
                );
            }
        }
        let sheets = browser.print_to_pdf(&folder.path().join("page.pdf"));
        assert!((1..=12).contains(&sheets), "{page}: {sheets} sheets");
    }
    // The checks detect a bad page.
    let bad_page = "<style>p{color:#aaa;width:3000px}</style><p>pale</p><script>console.error('x')</script>\
               <img src=\"http://example.invalid/x.png\">";
    std::fs::write(folder.path().join("bad.html"), bad_page).unwrap();
    let (_, view) = VIEWS[0];
    browser.open(&folder.path().join("bad.html"), view);
    let faults = browser.evaluate(CHECKS).to_string();
    assert!(faults.contains("contrast") && faults.contains("wider"), "{faults}");
    assert!(browser.take_page_problems().len() >= 2);
}

#[test]
fn charts_show_values_switch_lines_and_save_their_data() {
    let Some(mut browser) = start_browser(1) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    write_curve(folder.path());
    let (_, view) = VIEWS[0];
    browser.open(&folder.path().join("curve.html"), view);
    let values = browser.evaluate(
        "(() => { const svg = document.querySelector('svg.chart'), box = svg.getBoundingClientRect();
           svg.dispatchEvent(new PointerEvent('pointermove', { clientX: box.left + box.width / 2, clientY: box.top + 90 }));
           return document.querySelector('.values').innerText; })()",
    );
    let values = values.as_str().unwrap();
    assert!(values.contains("size of the cache: ") && values.contains("LRU"), "{values}");
    let button_and_line_states = browser.evaluate(
        "(() => { const button = document.querySelector('.legend button'); button.click();
           return [button.getAttribute('aria-pressed'), document.querySelector('[data-series=\"0\"]').style.display]; })()",
    );
    assert_eq!(button_and_line_states, serde_json::json!(["false", "none"]));
    let saved_file = browser.evaluate(
        "(async () => { let link; HTMLAnchorElement.prototype.click = function () { link = [this.download, fetch(this.href)]; };
           document.querySelector('.tools button').click();
           return [link[0], await (await link[1]).text()]; })()",
    );
    assert_eq!(saved_file[0], "miss-ratio-by-size.csv");
    let rows: Vec<&str> = saved_file[1].as_str().unwrap().lines().collect();
    assert!(rows.len() > 100, "{} rows", rows.len());
    assert!(rows[1].starts_with("LRU (exact),"), "{}", rows[1]);
    assert_eq!(browser.take_page_problems(), Vec::<String>::new());
}

#[test]
fn tables_sort_by_size_and_commands_can_be_copied() {
    let Some(mut browser) = start_browser(1) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    write_slabs(folder.path());
    let (_, view) = VIEWS[0];
    browser.open(&folder.path().join("slabs.html"), view);
    let columns = browser.evaluate(
        "(() => { const table = [...document.querySelectorAll('table')]
             .find((table) => table.tHead.rows[0].cells.length > 5);
           const column = () => [...table.tBodies[0].rows].map((row) => Number(row.cells[5].textContent));
           const button = table.tHead.rows[0].cells[5].querySelector('button');
           button.click(); const up = column(); button.click(); return [up, column()]; })()",
    );
    let parse_numbers = |list: &serde_json::Value| -> Vec<f64> {
        let list = list.as_array().unwrap().iter();
        list.filter_map(serde_json::Value::as_f64).collect()
    };
    let (ascending, mut descending) = (parse_numbers(&columns[0]), parse_numbers(&columns[1]));
    assert!(ascending.len() > 2 && ascending.is_sorted(), "{ascending:?}");
    descending.reverse();
    assert!(descending.is_sorted(), "{descending:?}");
    let copied_text = browser.evaluate(
        "(async () => { let text; Object.defineProperty(navigator, 'clipboard',
             { value: { writeText: async (what) => { text = what; } } });
           document.querySelector('code.copy + button').click();
           await new Promise((done) => setTimeout(done)); return text; })()",
    );
    let copied_text = copied_text.as_str().unwrap();
    assert!(copied_text.starts_with("memcached -o slab_sizes="), "{copied_text}");
    assert_eq!(browser.take_page_problems(), Vec::<String>::new());
}
