//! Hostile replies in random pieces: the client's pipeline reads the same whatever the cut, and a fault stays a fault.

#![no_main]

use glasscache_client::pipeline::{
    ExpectedReply, FoundValue, KeyHash, Pipeline, Reply, ReplyProgress,
};
use libfuzzer_sys::fuzz_target;

/// Bound of a value in this run: small, so that lengths beyond it are met.
const VALUE_BYTES_MAX: u64 = 1 << 12;

/// A pipeline that waits for one reply of each kind named by a byte of `kinds`.
fn pipeline_expecting(kinds: &[u8]) -> Pipeline {
    let mut pipeline = Pipeline::new(VALUE_BYTES_MAX);
    for (opaque, kind) in (1..).zip(kinds) {
        let expect = match kind % 6 {
            0 => {
                let mut keys = pipeline.key_list();
                for key in [&b"a"[..], b"b", b"key"] {
                    keys.push(b"", key);
                }
                ExpectedReply::Values(keys)
            }
            1 => ExpectedReply::Line,
            2 => ExpectedReply::Meta { opaque, key_hash: KeyHash::of(b"key") },
            3 => ExpectedReply::Quiet { first_opaque: opaque, count: 3 },
            4 => ExpectedReply::Rows,
            _ => ExpectedReply::Probe,
        };
        pipeline.expect(expect);
    }
    pipeline
}

/// The result of reading the replies: each reply with its values, and whether it ended in a fault.
type ReadResult = (Vec<(Reply, Vec<(FoundValue, Vec<u8>)>)>, bool);

/// Feeds `bytes` in pieces of 1 to `longest` bytes and reads all there is after each.
fn read(kinds: &[u8], bytes: &[u8], longest: usize) -> ReadResult {
    let mut pipeline = pipeline_expecting(kinds);
    let mut replies = Vec::new();
    for (index, piece) in bytes.chunks(longest).enumerate() {
        let (head, rest) = piece.split_at((index * 7 + 1) % (piece.len() + 1));
        for part in [head, rest] {
            pipeline.feed(part);
            loop {
                match pipeline.poll() {
                    Ok(ReplyProgress::Complete(reply)) => {
                        let values = pipeline
                            .found_values()
                            .iter()
                            .map(|found| (*found, pipeline.body(found).to_vec()));
                        replies.push((reply, values.collect()));
                        pipeline.release();
                    }
                    Ok(ReplyProgress::Incomplete(missing)) => {
                        assert!(missing > 0 && missing as u64 <= VALUE_BYTES_MAX + 2);
                        break;
                    }
                    Ok(ReplyProgress::Idle) => break,
                    Err(fault) => {
                        assert!(pipeline.poll() == Err(fault) && !pipeline.is_clean());
                        return (replies, true);
                    }
                }
            }
        }
    }
    (replies, false)
}

fuzz_target!(|input: (Vec<u8>, u8, &[u8])| {
    let (mut kinds, longest, bytes) = input;
    kinds.truncate(8);
    let whole = read(&kinds, bytes, bytes.len().max(1));
    let pieces = read(&kinds, bytes, usize::from(longest).max(1));
    for (_, values) in &whole.0 {
        for (found, value) in values {
            assert!(
                found.value_bytes == value.len() && found.value_bytes as u64 <= VALUE_BYTES_MAX
            );
        }
    }
    // Where the bytes lie in the buffer depends on the cut; what they are must not.
    let without_offsets = |result: &ReadResult| -> Vec<(Reply, Vec<(usize, u32, u64, Vec<u8>)>)> {
        let plain = |(found, value): &(FoundValue, Vec<u8>)| {
            (found.key_index, found.flags, found.cas, value.clone())
        };
        result
            .0
            .iter()
            .map(|(reply, values)| (reply.clone(), values.iter().map(plain).collect()))
            .collect()
    };
    assert_eq!((without_offsets(&whole), whole.1), (without_offsets(&pieces), pieces.1));
});
