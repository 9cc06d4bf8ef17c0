//! The 54 Twitter cache clusters with published figures, as workloads.
//!
//! `twitter-2020-clusters.csv` is the table `stat/2020Mar.md` of twitter/cache-trace, reshaped (J. Yang, Y. Yue and
//! K. V. Rashmi, OSDI 2020; CC BY 4.0). A workload uses these columns: the Zipf exponent, requests per object, the
//! share of objects seen once, the mean value size, the share of gets, the request rate, and the TTLs.

use super::keys::KeyWorkload;

const CLUSTER_TABLE: &str = include_str!("twitter-2020-clusters.csv");

/// Exponent for a cluster whose row has none: the median of the others.
const SKEW_DEFAULT: f64 = 1.2;

/// Clusters are numbered from 1 to this.
pub const CLUSTERS: u32 = 54;

/// A cluster as a workload with this many requests; `None` if the cluster does not exist or has no figures (number
/// 5).
pub fn twitter_cluster(cluster: u32, requests: u64, seed: u64) -> Option<KeyWorkload> {
    let mut lines = CLUSTER_TABLE.lines();
    let column_names: Vec<&str> = lines.next()?.split(',').collect();
    let row: Vec<&str> = lines
        .map(|line| line.split(',').collect::<Vec<_>>())
        .find(|row| row.first().and_then(|number| number.parse().ok()) == Some(cluster))?;
    let column_text = |name: &str| {
        let index = column_names.iter().position(|&column_name| column_name == name)?;
        row.get(index).copied()
    };
    let column_number =
        |name: &str| column_text(name)?.parse::<f64>().ok().filter(|number| number.is_finite());
    let requests_per_object = column_number("mean_frequency").unwrap_or(10.0).max(1.0);
    let object_count = (requests as f64 / requests_per_object).max(1.0);
    let one_hit_share = column_number("one_hit_wonder_pct").unwrap_or(0.0) / 100.0;
    Some(KeyWorkload {
        requests,
        keys: (object_count * (1.0 - one_hit_share)).max(1.0) as u64,
        skew: column_number("zipf_alpha").unwrap_or(SKEW_DEFAULT),
        one_hit_share: (object_count * one_hit_share / requests.max(1) as f64).min(1.0),
        size_mean: column_number("value_size_mean")?,
        read_share: column_number("get_ratio").unwrap_or(1.0),
        rate: column_number("request_rate_kqps").unwrap_or(100.0).max(0.001) * 1000.0,
        ttls: parse_ttls(column_text("ttl_seconds_share").unwrap_or("")),
        seed,
    })
}

/// Reads `seconds:share` pairs.
fn parse_ttls(text: &str) -> Vec<(u32, f64)> {
    let parse_pair = |pair: &str| {
        let (seconds, share) = pair.split_once(':')?;
        Some((seconds.parse().ok()?, share.parse().ok()?))
    };
    text.split_whitespace().filter_map(parse_pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cluster_with_figures_is_a_workload() {
        for cluster in (1..=CLUSTERS).filter(|cluster| *cluster != 5) {
            let workload = twitter_cluster(cluster, 1_000_000, 1).unwrap();
            assert!(
                workload.keys >= 1 && workload.size_mean > 0.0,
                "cluster {cluster}: {workload:?}"
            );
            assert!((0.0..=1.0).contains(&workload.read_share), "cluster {cluster}: {workload:?}");
        }
        assert_eq!((twitter_cluster(5, 10, 1), twitter_cluster(55, 10, 1)), (None, None));
    }

    #[test]
    fn reads_a_row_by_column_names() {
        let workload = twitter_cluster(4, 1_000_000, 1).unwrap();
        assert_eq!(
            (workload.skew, workload.size_mean, workload.read_share),
            (1.1004, 2439.0, 0.93)
        );
        assert_eq!(workload.ttls[1], (300, 0.24));
    }
}
