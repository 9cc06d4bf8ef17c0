//! The JSON of a roll-out in one process, which a client's report contains and `glasscache rollout` reads.

use std::fmt::Write as _;

use super::counts::{Block, GroupCounts};
use super::process_rollout::ProcessRollout;
use super::routes::RouteSums;
use super::value_checks::ValueChecks;
use crate::fixed_set::FixedSetLoads;
use crate::notation::Strategy;

/// The JSON of a process that runs this strategy (docs/reference/json.md); `fill_fraction` is how much of what its near
/// cache may hold it holds, if it has one, `loads` what its fixed set cost.
pub fn rollout_json(
    strategy: &Strategy,
    process_rollout: &ProcessRollout,
    fill_fraction: Option<f64>,
    loads: FixedSetLoads,
) -> String {
    let disable_reason = process_rollout
        .disable_reason()
        .map_or("null".to_owned(), |regression| quote_json(&regression.to_string()));
    let forecast_documents = process_rollout.forecasts().iter().map(|forecast| {
        format!(
            "{{\"figure\":{},\"value\":{},\"low\":{},\"high\":{}}}",
            quote_json(&forecast.figure),
            forecast.value,
            forecast.low,
            forecast.high
        )
    });
    let groups = process_rollout.groups();
    format!(
        "{{\"process\":\"{:016x}\",\"strategy\":\"{strategy}\",\"share\":{},\"share_by\":\"{}\",\
         \"disabled\":{disable_reason},\"warm_up_requests\":{},\"forecast\":[{}],\
         \"groups\":{{\"strategy\":{},\"control\":{}}},\"routes\":[{}],{}}}",
        process_rollout.process_seed(),
        process_rollout.share().fraction,
        process_rollout.share().by,
        process_rollout.warm_up_requests(),
        forecast_documents.collect::<Vec<_>>().join(","),
        group_json(&groups.strategy),
        group_json(&groups.control),
        routes_json(process_rollout),
        near_json(process_rollout, fill_fraction, loads),
    )
}

fn routes_json(process_rollout: &ProcessRollout) -> String {
    let sums_json = |sums: &RouteSums| {
        format!("[{},{},{}]", sums.requests, sums.added_ns, sums.added_ms_squares)
    };
    let routes = process_rollout.routes().iter().map(|(name, sums)| {
        format!(
            "{{\"route\":{},\"strategy\":{},\"control\":{}}}",
            quote_json(name),
            sums_json(&sums.strategy),
            sums_json(&sums.control)
        )
    });
    routes.collect::<Vec<_>>().join(",")
}

fn near_json(
    process_rollout: &ProcessRollout,
    fill_fraction: Option<f64>,
    loads: FixedSetLoads,
) -> String {
    let ValueChecks { compared, differing, wrong, bound_ms } = process_rollout.value_checks();
    let fill = fill_fraction.map_or("null".to_owned(), |fraction| fraction.to_string());
    format!(
        "\"value_checks\":{{\"compared\":{compared},\"differing\":{differing},\"wrong\":{wrong},\"bound_ms\":{bound_ms}}},\
         \"near_fill\":{fill},\"near_growing\":{},\"kept_calls\":{},\"kept_keys\":{}",
        fill_fraction.is_some() && !process_rollout.is_warm(),
        loads.calls,
        loads.keys,
    )
}

fn group_json(group: &GroupCounts) -> String {
    let Block { requests, calls, keys, added_ns, decode_ns } = group.sum;
    let added_ns_counts =
        group.added_ns_counts().map(|(bucket_ns, count)| format!("[{bucket_ns},{count}]"));
    let blocks = group.blocks().iter().map(|block| {
        format!("[{},{},{},{}]", block.requests, block.calls, block.keys, block.added_ns)
    });
    let decode_ns_of_blocks = group.blocks().iter().map(|block| block.decode_ns.to_string());
    format!(
        "{{\"requests\":{requests},\"failed_requests\":{},\"calls\":{calls},\"keys\":{keys},\"bytes\":{},\
         \"added_ns\":{added_ns},\"decode_ns\":{decode_ns},\"added_ns_counts\":[{}],\"blocks\":[{}],\"decode_ns_of_blocks\":[{}]}}",
        group.failed_requests,
        group.bytes,
        added_ns_counts.collect::<Vec<_>>().join(","),
        blocks.collect::<Vec<_>>().join(","),
        decode_ns_of_blocks.collect::<Vec<_>>().join(","),
    )
}

/// A text as a JSON string: the figure of a forecast may be any word of the strategy file.
fn quote_json(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => {
                // Writing into a string does not fail.
                let _ = write!(quoted, "\\u{:04x}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::super::counts::RequestCost;
    use super::super::rollout_share::RolloutShare;
    use super::super::warm_up::NearContent;
    use super::*;
    use crate::file::Forecast;

    #[test]
    fn the_document_has_both_groups_and_the_forecast() {
        let forecasts =
            vec![Forecast { figure: "calls\"\\\u{1}".into(), value: 2.5, low: 2.0, high: 3.0 }];
        let mut process_rollout =
            ProcessRollout::new(forecasts, Some(RolloutShare::default()), 255);
        let group = process_rollout.begin_request();
        let cost = RequestCost {
            calls: 2,
            keys: 3,
            bytes: 10,
            added_ns: 100,
            decode_ns: 40,
            has_failed: false,
        };
        let checks = ValueChecks { compared: 7, differing: 2, wrong: 0, bound_ms: 0 };
        process_rollout.count_value_checks(&checks);
        process_rollout.end_request(group, Some("/a\""), &cost, NearContent::COMPLETE);
        let strategy = "lru:3+children".parse().unwrap();
        let loads = FixedSetLoads { calls: 2, keys: 30 };
        let text = rollout_json(&strategy, &process_rollout, Some(0.5), loads);
        let expected = concat!(
            r#"{"process":"00000000000000ff","strategy":"lru:3+children","share":1,"share_by":"request","#,
            r#""disabled":null,"warm_up_requests":0,"#,
            r#""forecast":[{"figure":"calls\"\\\u0001","value":2.5,"low":2,"high":3}],"#,
            r#""groups":{"strategy":{"requests":1,"failed_requests":0,"calls":2,"keys":3,"bytes":10,"#,
            r#""added_ns":100,"decode_ns":40,"added_ns_counts":[[100,1]],"blocks":[[1,2,3,100]],"#,
            r#""decode_ns_of_blocks":[40]},"#,
            r#""control":{"requests":0,"failed_requests":0,"calls":0,"keys":0,"bytes":0,"#,
            r#""added_ns":0,"decode_ns":0,"added_ns_counts":[],"blocks":[],"decode_ns_of_blocks":[]}},"#,
            r#""routes":[{"route":"/a\"","strategy":[1,100,0.00000001],"control":[0,0,0]}],"#,
            r#""value_checks":{"compared":7,"differing":2,"wrong":0,"bound_ms":0},"#,
            r#""near_fill":0.5,"near_growing":false,"kept_calls":2,"kept_keys":30}"#,
        );
        assert_eq!(text, expected);
    }
}
