//! A Chromium that a test drives: over a pipe, with the messages of the `DevTools` protocol, without a network.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

/// Names of the browser on different systems.
const BROWSERS: [&str; 4] =
    ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// How a page is looked at.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View {
    /// CSS pixels.
    pub(crate) width: u32,
    pub(crate) is_dark: bool,
    pub(crate) is_print: bool,
}

/// A running browser with one tab.
pub(crate) struct Browser {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    last_id: u64,
    session_id: Option<String>,
    /// Console messages, exceptions and requests since the page was opened.
    page_problems: Vec<String>,
    is_loaded: bool,
    _profile: TempDir,
}

/// The browser on the path, if there is one.
pub(crate) fn find_browser() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let candidates: Vec<PathBuf> = std::env::split_paths(&path)
        .flat_map(|folder| BROWSERS.map(|name| folder.join(name)))
        .collect();
    candidates.into_iter().find(|candidate| candidate.is_file())
}

impl Browser {
    /// Starts `program` with an empty profile.
    pub(crate) fn start(program: &Path) -> Browser {
        let profile = tempfile::tempdir().unwrap();
        // Chromium reads the protocol from descriptor 3 and writes it to 4.
        let mut child = Command::new("sh")
            .args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 0</dev/null 1>/dev/null"])
            .arg(program)
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--hide-scrollbars",
                "--no-first-run",
                "--disable-dev-shm-usage",
                "--disable-background-networking",
                "--disable-component-update",
                "--host-resolver-rules=MAP * ~NOTFOUND",
                "--remote-debugging-pipe",
            ])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut browser = Browser {
            input: child.stdin.take().unwrap(),
            output: BufReader::new(child.stdout.take().unwrap()),
            child,
            last_id: 0,
            session_id: None,
            page_problems: Vec::new(),
            is_loaded: false,
            _profile: profile,
        };
        let tab = browser.call("Target.createTarget", &json!({ "url": "about:blank" }));
        let attach_parameters = json!({ "targetId": tab["targetId"], "flatten": true });
        let attachment = browser.call("Target.attachToTarget", &attach_parameters);
        browser.session_id = attachment["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), &json!({}));
        }
        browser
    }

    /// Sends a command and returns its result; collects the events before it.
    fn call(&mut self, method: &str, parameters: &Value) -> Value {
        self.last_id += 1;
        let mut message = json!({ "id": self.last_id, "method": method, "params": parameters });
        if let Some(session_id) = &self.session_id {
            message["sessionId"] = json!(session_id);
        }
        self.input.write_all(message.to_string().as_bytes()).unwrap();
        self.input.write_all(b"\0").unwrap();
        loop {
            let message = self.receive();
            if message["id"] == self.last_id {
                assert!(message["error"].is_null(), "{method}: {message}");
                return message["result"].clone();
            }
        }
    }

    fn receive(&mut self) -> Value {
        let mut bytes = Vec::new();
        let read_bytes = self.output.read_until(0, &mut bytes).unwrap();
        assert!(read_bytes > 0, "the browser ended");
        bytes.pop();
        let message: Value = serde_json::from_slice(&bytes).unwrap();
        let parameters = &message["params"];
        match message["method"].as_str().unwrap_or_default() {
            "Page.loadEventFired" => self.is_loaded = true,
            "Runtime.consoleAPICalled" | "Runtime.exceptionThrown" | "Log.entryAdded" => {
                self.page_problems.push(parameters.to_string());
            }
            "Network.requestWillBeSent" => {
                let address = parameters["request"]["url"].as_str().unwrap_or_default();
                let is_local = ["file:", "data:", "blob:", "about:"]
                    .iter()
                    .any(|scheme| address.starts_with(scheme));
                if !is_local {
                    self.page_problems.push(format!("request of {address}"));
                }
            }
            _ => {}
        }
        message
    }

    /// Opens a page of the disk and returns when it is drawn.
    pub(crate) fn open(&mut self, page: &Path, view: View) {
        let height = if view.width < 600 { 844 } else { 900 };
        self.call(
            "Emulation.setDeviceMetricsOverride",
            &json!({ "width": view.width, "height": height, "deviceScaleFactor": 1, "mobile": view.width < 600 }),
        );
        let scheme = if view.is_dark { "dark" } else { "light" };
        self.call(
            "Emulation.setEmulatedMedia",
            &json!({
                "media": if view.is_print { "print" } else { "" },
                "features": [{ "name": "prefers-color-scheme", "value": scheme }],
            }),
        );
        self.page_problems.clear();
        self.is_loaded = false;
        let address = format!("file://{}", page.display());
        self.call("Page.navigate", &json!({ "url": address }));
        while !self.is_loaded {
            self.receive();
        }
    }

    /// The value of an expression in the page; a promise is awaited.
    pub(crate) fn evaluate(&mut self, expression: &str) -> Value {
        let result = self.call(
            "Runtime.evaluate",
            &json!({ "expression": expression, "returnByValue": true, "awaitPromise": true }),
        );
        assert!(result["exceptionDetails"].is_null(), "{expression}: {result}");
        result["result"]["value"].clone()
    }

    /// Console messages, exceptions and requests since the page was opened.
    pub(crate) fn take_page_problems(&mut self) -> Vec<String> {
        // A call makes sure that earlier events have arrived.
        self.evaluate("0");
        std::mem::take(&mut self.page_problems)
    }

    /// Writes a picture of the whole page.
    pub(crate) fn write_screenshot(&mut self, path: &Path) {
        let picture = self.call(
            "Page.captureScreenshot",
            &json!({ "format": "png", "captureBeyondViewport": true }),
        );
        write_base64(path, &picture["data"]);
    }

    /// Prints the page on A4 and returns how many sheets it has.
    pub(crate) fn print_to_pdf(&mut self, path: &Path) -> usize {
        let document = self.call(
            "Page.printToPDF",
            &json!({ "preferCSSPageSize": true, "printBackground": false }),
        );
        write_base64(path, &document["data"]);
        let bytes = std::fs::read(path).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        text.matches("/Type /Page\n").count() + text.matches("/Type /Page/").count()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn write_base64(path: &Path, data: &Value) {
    let decoder = Command::new("base64")
        .arg("-d")
        .stdin(Stdio::piped())
        .stdout(std::fs::File::create(path).unwrap())
        .spawn();
    let mut decoder = decoder.unwrap();
    let base64_text = data.as_str().unwrap();
    decoder.stdin.take().unwrap().write_all(base64_text.as_bytes()).unwrap();
    assert!(decoder.wait().unwrap().success());
}
