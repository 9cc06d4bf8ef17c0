//! Every page in a browser: rendered by Chromium without a network, in light and dark mode, narrow and wide.
//!
//! A page must print nothing to the console and request nothing. Without Chromium the tests print a note and check
//! only that the pages are small and contain no URL.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Names of the browser on different systems.
const BROWSERS: [&str; 4] = [
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
];
/// Text before the URL of a request made by a page (and not by the browser itself): the id of Chromium's annotation
/// `blink_resource_loader`.
const PAGE_REQUEST_MARK: &str = "\"traffic_annotation\":101845102,\"url\":\"";
const PAGE_BYTES_MAX: usize = 700_000;

fn glasscache(folder: &Path, arguments: &[&str]) {
    let output = Command::new(env!("CARGO_BIN_EXE_glasscache"))
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
}

/// Writes each kind of page and returns their names.
fn pages(folder: &Path) -> Vec<&'static str> {
    let run = |line: &str| glasscache(folder, &line.split(' ').collect::<Vec<_>>());
    run("generate zipf keys.csv --requests 5000 --keys 300");
    run("generate topic-tree site --requests 2000 --items 300");
    std::fs::write(
        folder.join("sizes.csv"),
        "size,count\n100,50\n2000,20\n90000,3\n",
    )
    .unwrap();
    run("curve keys.csv --html curve.html");
    run("curve keys.csv --policies none --sample 100 --html sampled.html");
    run("slabs sizes.csv --html slabs.html");
    run("simulate site --by route --draw --html simulate.html");
    run("simulate site --search --memory 64k --html search.html");
    vec![
        "curve.html",
        "sampled.html",
        "slabs.html",
        "simulate.html",
        "search.html",
    ]
}

fn browser() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let candidates = std::env::split_paths(&path)
        .flat_map(|folder| BROWSERS.map(|name| folder.join(name)))
        .collect::<Vec<_>>();
    candidates.into_iter().find(|file| file.is_file())
}

/// Console messages and requests of a browser while it renders a page.
fn complaints(browser: &Path, folder: &Path, page: &str, is_dark: bool, width: u32) -> Vec<String> {
    let scheme = u8::from(!is_dark);
    let (network, profile) = (folder.join("network.json"), folder.join("profile"));
    let output = Command::new(browser)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--host-resolver-rules=MAP * ~NOTFOUND",
            "--enable-logging=stderr",
        ])
        .arg(format!("--blink-settings=preferredColorScheme={scheme}"))
        .arg(format!("--window-size={width},1600"))
        .arg(format!("--log-net-log={}", network.display()))
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(format!(
            "--screenshot={}",
            folder.join("page.png").display()
        ))
        .arg(format!("file://{}", folder.join(page).display()))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        folder.join("page.png").exists(),
        "{page} was not drawn: {stderr}"
    );
    std::fs::remove_file(folder.join("page.png")).unwrap();
    let console = stderr.lines().filter(|line| line.contains("CONSOLE"));
    let log = std::fs::read_to_string(network).unwrap_or_default();
    let requests = log.split(PAGE_REQUEST_MARK).skip(1);
    let requests = requests.filter_map(|rest| rest.split('"').next());
    let requests = requests.filter(|address| address.starts_with("http"));
    console.chain(requests).map(str::to_owned).collect()
}

#[test]
fn pages_are_small_without_urls() {
    let folder = tempfile::tempdir().unwrap();
    for page in pages(folder.path()) {
        let text = std::fs::read_to_string(folder.path().join(page)).unwrap();
        assert!(text.len() <= PAGE_BYTES_MAX, "{page}: {} bytes", text.len());
        for address in ["http:", "https:", "src=", "<script", "@import", "url("] {
            assert!(!text.contains(address), "{page} has {address}");
        }
    }
}

#[test]
fn a_browser_renders_pages_without_messages_or_requests() {
    let Some(browser) = browser() else {
        eprintln!("no Chromium is installed, so no page was drawn");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    for page in pages(folder.path()) {
        for (is_dark, width) in [(false, 1200), (true, 500)] {
            let found = complaints(&browser, folder.path(), page, is_dark, width);
            assert_eq!(found, Vec::<String>::new(), "{page}");
        }
    }
    // The check detects a bad page.
    let bad = "<script>console.error('x')</script><img src=\"http://example.invalid/x.png\">";
    std::fs::write(folder.path().join("bad.html"), bad).unwrap();
    let found = complaints(&browser, folder.path(), "bad.html", false, 1200);
    assert!(found.len() >= 2, "{found:?}");
}
