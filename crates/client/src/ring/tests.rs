//! Rules of placement that hold without the other libraries; `tests/placement` compares with the libraries.

use super::*;

fn servers(count: u16) -> Vec<RingServer> {
    (0..count)
        .map(|index| RingServer::tcp(format!("10.0.0.{}", index + 1), 11211 + index))
        .collect()
}

fn keys() -> impl Iterator<Item = Vec<u8>> {
    (0..20_000u32).map(|index| format!("key:{index}").into_bytes())
}

fn moved_fraction(before: &Ring, after: &Ring) -> f64 {
    let moved_count = keys().filter(|key| before.server_of(key) != after.server_of(key)).count();
    moved_count as f64 / 20_000.0
}

#[test]
fn each_placement_has_one_name() {
    for (placement, name) in PLACEMENTS {
        assert_eq!(name.parse(), Ok(placement));
        assert_eq!(placement.to_string(), name);
    }
    assert!("ketema".parse::<Placement>().is_err());
}

#[test]
fn a_ring_of_one_server_sends_every_key_there() {
    for (placement, _) in PLACEMENTS {
        let ring = Ring::new(&servers(1), placement).unwrap();
        assert!(keys().take(100).all(|key| ring.server_of(&key) == 0));
    }
}

#[test]
fn keys_are_spread_evenly() {
    for (placement, name) in PLACEMENTS {
        let ring = Ring::new(&servers(5), placement).unwrap();
        let mut key_counts = [0u32; 5];
        keys().for_each(|key| key_counts[ring.server_of(&key)] += 1);
        assert!(
            key_counts.iter().all(|count| (2000..6500).contains(count)),
            "{name}: {key_counts:?}"
        );
    }
}

#[test]
fn a_new_server_takes_about_its_share_of_the_keys() {
    for placement in [
        Placement::Ketama,
        Placement::KetamaOneAtATime,
        Placement::Dalli,
        Placement::Jump,
        Placement::Rendezvous,
    ] {
        let before = Ring::new(&servers(4), placement).unwrap();
        let after = Ring::new(&servers(5), placement).unwrap();
        let moved_fraction = moved_fraction(&before, &after);
        assert!((0.13..0.27).contains(&moved_fraction), "{placement}: {moved_fraction}");
    }
}

#[test]
fn a_weight_of_two_receives_about_twice_the_keys() {
    for placement in
        [Placement::Ketama, Placement::Dalli, Placement::Crc, Placement::Crc32, Placement::Jump]
    {
        let mut weighted_servers = servers(3);
        weighted_servers[1].weight = 2;
        let ring = Ring::new(&weighted_servers, placement).unwrap();
        let heavy_server_key_count = keys().filter(|key| ring.server_of(key) == 1).count();
        assert!(
            (8500..11500).contains(&heavy_server_key_count),
            "{placement}: {heavy_server_key_count}"
        );
    }
}

#[test]
fn weights_are_refused_where_the_library_has_none() {
    let weighted_servers = [RingServer::tcp("a", 1).with_weight(2), RingServer::tcp("b", 1)];
    let error = Ring::new(&weighted_servers, Placement::Rendezvous).unwrap_err();
    assert!(error.to_string().contains("rendezvous has no weights"), "{error}");
    assert_eq!(Ring::new(&[], Placement::Ketama).unwrap_err(), RingError::NoServers);
    let servers_without_weight = [RingServer::tcp("a", 1).with_weight(0)];
    assert!(matches!(
        Ring::new(&servers_without_weight, Placement::Ketama),
        Err(RingError::BadWeight { .. })
    ));
}

#[test]
fn hashes_equal_their_published_vectors() {
    assert_eq!(hash::one_at_a_time(b"a"), 0xca2e_9442);
    assert_eq!(hash::murmur3_of_chars("hello"), 0x248b_fa47);
    assert_eq!(hash::murmur3_of_chars("hello, world"), 0x149b_bb7f);
    assert_eq!(hash::java_string(b"hello"), 99_162_322);
    assert_eq!(hash::md5_word(b"a"), 0xb975_c10c);
}
