//! `glasscache rollout`: what the processes of an application report of a strategy, compared with the requests that do not
//! run it, whether to continue, and what became of the forecast.
//!
//! Figures, intervals and the recommendation are those by which a process disables a strategy itself
//! (`glasscache_strategy::rollout`); this command adds up the processes.

mod output;
mod reports;

use std::path::PathBuf;

use glasscache_client::near::rollout::recommendation::{Action, recommend};
use glasscache_lab::text::wrap;
use serde_json::json;

use crate::output::{Exit, Failure, Output};
use reports::Reports;

const EXAMPLES: &str = "\
Examples:
  glasscache rollout stats/*.json
  glasscache rollout web1.json web2.json --json

Each process writes client.report(json=True) into a file, where client is \
Client(..., strategy=\"best.strategy\", share=0.1). A file may have several reports, one a line; \
of each process the one with the most requests counts. The exit code is 1 if the recommendation \
is to roll back.";

/// Compare the requests that run a strategy with the others: continue, wait or roll back? And did the forecast come true?
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Files with what client.report(json=True) returned in each process
    #[arg(id = "stats", required = true, value_name = "STATS")]
    report_paths: Vec<PathBuf>,
}

impl Args {
    /// Reads the reports, compares, recommends.
    pub(crate) fn run(self, out: &Output) -> Result<Exit, Failure> {
        let reports = Reports::read(&self.report_paths)?;
        let recommendation = recommend(&reports.forecast, &reports.measured);
        let sentence = format!(
            "Recommendation: {}. {}. {}.",
            recommendation.action.name(),
            output::capitalise_first_letter(&recommendation.reason),
            recommendation.forecast_check
        );
        if out.is_json() {
            let mut document = output::build_document(&reports, &recommendation);
            document["sentence"] = json!(sentence);
            out.set_result(&document);
        } else {
            out.print_line(wrap(&sentence))?;
            out.print_line(format!("\n{}", output::format_metrics(&reports)))?;
            if let Some(table) = output::format_routes(&reports) {
                out.print_line(table)?;
            }
            out.print_line(wrap(&output::describe_reports(&reports)))?;
            for reason in &reports.disabled_because {
                let note = format!("Disabled in a process: {reason}.");
                out.print_line(wrap(&note))?;
            }
        }
        Ok(match recommendation.action {
            Action::RollBack => Exit::Finding,
            Action::Continue | Action::Wait => Exit::Success,
        })
    }
}
