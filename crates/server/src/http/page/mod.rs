//! The page at `/`: what an operator asks of a cache, the first question first.
//!
//! Each section is rendered here, for the first paint and for every update: the script only replaces sections whose
//! HTML has changed. So the page is complete without a script, and nothing is drawn in two languages. No request leaves
//! the server: style and script are in the page, charts are SVG (docs/decisions/lab.md, 0087).

mod figures;
mod sections;

use std::fmt::Write as _;

use glasscache_sim::page::{STYLE, escape};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

pub(super) use self::sections::View;
use self::sections::{HEADER, SECTIONS, Section};
use super::response::{HTML, Response};

/// What this page has beside the style of all pages.
const OWN_STYLE: &str = include_str!("style.css");
/// The script: updates, pause, and the token.
const SCRIPT: &str = include_str!("page.js");

/// The whole page.
pub(super) fn respond_page(view: &View<'_>) -> Response {
    let mut body = String::from(
        "<a class=\"skip\" href=\"#findings\">Skip to the findings</a><header><h1>glasscache</h1>",
    );
    write_section(&mut body, &HEADER, view);
    body.push_str(
        "<div class=\"controls\"><span id=\"connection\" role=\"status\">not live: reload for new figures</span>\
         <button type=\"button\" id=\"pause\" aria-pressed=\"false\" hidden>Pause</button></div></header><main>",
    );
    for section in &SECTIONS {
        let Section { id, title, is_wide, .. } = section;
        let class = if *is_wide { " class=\"full\"" } else { "" };
        let _ = write!(
            body,
            "<section{class} aria-labelledby=\"{id}-title\"><h2 id=\"{id}-title\">{title}</h2>"
        );
        write_section(&mut body, section, view);
        body.push_str("</section>");
    }
    body.push_str("</main>");
    respond_html(&body)
}

/// A page without figures, which requests the token.
pub(super) fn respond_login() -> Response {
    respond_html(
        "<main><form id=\"login\"><h1>glasscache</h1><p id=\"refused\" role=\"status\"></p>\
         <label for=\"token\">Token (the first line of the file in --http-token-file)</label>\
         <input id=\"token\" type=\"password\" autocomplete=\"current-password\" required>\
         <button type=\"submit\">Show</button><noscript><p>Without a script, use a client that sends Authorization: \
         Bearer TOKEN.</p></noscript></form></main>",
    )
}

fn respond_html(body: &str) -> Response {
    let html = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><link rel=\"icon\" href=\"data:,\">\
         <title>glasscache</title><style>{STYLE}{OWN_STYLE}</style></head><body>{body}<script>{SCRIPT}</script></body></html>\n"
    );
    // The one script may run, and connect to this server alone.
    let script_hash = base64_of(&Sha256::digest(SCRIPT));
    let policy = format!(
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; connect-src 'self'; script-src 'sha256-{script_hash}'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    Response::new(HTML, html).with_field("Content-Security-Policy", &policy)
}

fn base64_of(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::prelude::BASE64_STANDARD.encode(bytes)
}

/// One event: every section by its id.
pub(super) fn format_event(view: &View<'_>) -> Vec<u8> {
    let sections = [&HEADER].into_iter().chain(&SECTIONS);
    let html_by_id = sections.map(|section| {
        let mut html = String::new();
        (section.write)(view, &mut html);
        (section.id.to_owned(), Value::String(html))
    });
    let document = Value::Object(html_by_id.collect::<Map<_, _>>());
    format!("data: {document}\n\n").into_bytes()
}

/// The part of a section that events replace.
fn write_section(html: &mut String, section: &Section, view: &View<'_>) {
    let _ = write!(html, "<div id=\"{}\">", section.id);
    (section.write)(view, html);
    html.push_str("</div>");
}

/// A table that can be scrolled sideways, also by the keyboard; the first column names the row.
fn write_table(html: &mut String, label: &str, header: &[&str], rows: &[Vec<String>]) {
    // Not the name of the section, which is a landmark of its own.
    let label = escape(&format!("{label}: table"));
    let _ = write!(
        html,
        "<div class=\"wide\" role=\"region\" tabindex=\"0\" aria-label=\"{label}\"><table><thead><tr>"
    );
    for (column, name) in header.iter().enumerate() {
        let class = if column == 0 { "" } else { " class=\"n\"" };
        let _ = write!(html, "<th scope=\"col\"{class}>{}</th>", escape(name));
    }
    html.push_str("</tr></thead><tbody>");
    for row in rows {
        html.push_str("<tr>");
        for (column, cell) in row.iter().enumerate() {
            let cell = escape(cell);
            let _ = match column {
                0 => write!(html, "<th scope=\"row\">{cell}</th>"),
                _ => write!(html, "<td class=\"n\">{cell}</td>"),
            };
        }
        html.push_str("</tr>");
    }
    html.push_str("</tbody></table></div>");
}

fn write_paragraph(html: &mut String, class: &str, text: &str) {
    let _ = write!(html, "<p class=\"{class}\">{}</p>", escape(text));
}
