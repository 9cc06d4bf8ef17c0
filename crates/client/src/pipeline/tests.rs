//! Tests of the pipeline: requests expected, replies in pieces, and replies that do not fit.

use super::*;

fn pipeline_awaiting_get(keys: &[&[u8]]) -> Pipeline {
    let mut pipeline = Pipeline::new(1000);
    let mut key_list = pipeline.key_list();
    key_list.begin(b"get");
    for key in keys {
        key_list.push(b"", key);
    }
    key_list.finish();
    pipeline.expect(ExpectedReply::Values(key_list));
    pipeline
}

/// Feeds `reply` in pieces of `piece_bytes` bytes and returns the state of the pipeline.
fn feed_in_pieces(
    mut pipeline: Pipeline,
    reply: &[u8],
    piece_bytes: usize,
) -> (Pipeline, Result<ReplyProgress, Fault>) {
    let mut progress = pipeline.poll();
    for piece in reply.chunks(piece_bytes) {
        pipeline.feed(piece);
        progress = pipeline.poll();
        if progress.is_err() {
            break;
        }
    }
    (pipeline, progress)
}

#[test]
fn values_are_matched_by_key_however_the_bytes_are_cut() {
    let reply = b"VALUE a 16 3\r\nx\r\n\r\nVALUE c 0 0\r\n\r\nEND\r\n";
    for piece_bytes in 1..reply.len() {
        let (mut pipeline, progress) =
            feed_in_pieces(pipeline_awaiting_get(&[b"a", b"b", b"c"]), reply, piece_bytes);
        assert_eq!(progress, Ok(ReplyProgress::Complete(Reply::Values)));
        let found_values = pipeline.found_values().to_vec();
        assert_eq!(
            found_values.iter().map(|found_value| found_value.key_index).collect::<Vec<_>>(),
            [0, 2]
        );
        assert_eq!(pipeline.body(&found_values[0]), b"x\r\n");
        assert_eq!(pipeline.body(&found_values[1]), b"");
        assert!(!pipeline.is_clean());
        pipeline.release();
        assert!(pipeline.is_clean());
    }
}

#[test]
fn numbers_of_32_bits_are_read_the_same_however_the_bytes_are_cut() {
    let flags_of = |head: &str, piece_bytes: usize| {
        let reply = format!("VALUE a {head} 1\r\nx\r\nEND\r\n");
        let pipeline = pipeline_awaiting_get(&[b"a"]);
        let (pipeline, progress) = feed_in_pieces(pipeline, reply.as_bytes(), piece_bytes);
        progress.map(|_| pipeline.found_values().first().map(|found| found.flags))
    };
    for piece_bytes in [1, 100] {
        assert_eq!(flags_of("0", piece_bytes), Ok(Some(0)));
        assert_eq!(flags_of("2617245697", piece_bytes), Ok(Some(2_617_245_697)));
        assert_eq!(flags_of("4294967295", piece_bytes), Ok(Some(u32::MAX)));
        for no_number in ["4294967296", "99999999999", "1a"] {
            assert!(flags_of(no_number, piece_bytes).is_err(), "{no_number:?}");
        }
    }
}

#[test]
fn values_may_come_in_another_order_but_not_twice() {
    let reply = b"VALUE b 0 1\r\n2\r\nVALUE a 0 1\r\n1\r\nEND\r\n";
    let (pipeline, progress) = feed_in_pieces(pipeline_awaiting_get(&[b"a", b"b"]), reply, 7);
    assert_eq!(progress, Ok(ReplyProgress::Complete(Reply::Values)));
    assert_eq!(pipeline.body(&pipeline.found_values()[1]), b"1");
    let reply = b"VALUE a 0 1\r\n1\r\nVALUE a 0 1\r\n1\r\nEND\r\n";
    assert_eq!(
        feed_in_pieces(pipeline_awaiting_get(&[b"a", b"b"]), reply, 7).1,
        Err(Fault::WrongKey)
    );
}

#[test]
fn a_reply_that_does_not_match_poisons_the_pipeline_for_good() {
    let cases: [(&[u8], Fault); 6] = [
        (b"VALUE other 0 1\r\nx\r\nEND\r\n", Fault::WrongKey),
        (b"VALUE a 0 5\r\nx\r\nEND\r\n", Fault::WrongLength),
        (b"VALUE a 0 2000000000\r\n", Fault::TooLong { bytes: 2_000_000_000, limit: 1000 }),
        (b"STORED\r\n", Fault::Line(ReplyFault::Unexpected)),
        (b"VALUE a 0 1\r\nx\r\n\r\n", Fault::Line(ReplyFault::Unexpected)),
        (&[b'x'; 9000], Fault::Line(ReplyFault::LineTooLong)),
    ];
    for (reply, fault) in cases {
        let (mut pipeline, progress) = feed_in_pieces(pipeline_awaiting_get(&[b"a"]), reply, 9000);
        assert_eq!(progress, Err(fault));
        pipeline.feed(b"END\r\n");
        assert_eq!(pipeline.poll(), Err(fault));
        assert!(!pipeline.is_clean());
    }
}

#[test]
fn bytes_beyond_the_last_reply_are_a_fault() {
    let (mut pipeline, progress) =
        feed_in_pieces(pipeline_awaiting_get(&[b"a"]), b"END\r\nEND\r\n", 100);
    assert_eq!(progress, Ok(ReplyProgress::Complete(Reply::Values)));
    pipeline.release();
    assert!(!pipeline.is_clean());
    assert_eq!(pipeline.poll(), Err(Fault::Unsolicited));
}

#[test]
fn a_meta_reply_must_carry_its_opaque() {
    for (reply, expected) in [
        (&b"HD O7\r\n"[..], None),
        (b"EN\r\n", None),
        (b"HD O8\r\n", Some(Fault::WrongOpaque)),
        (b"HD\r\n", Some(Fault::WrongOpaque)),
    ] {
        let mut pipeline = Pipeline::new(1000);
        pipeline.expect(ExpectedReply::Meta { opaque: 7, key_hash: KeyHash::of(b"a") });
        assert_eq!(feed_in_pieces(pipeline, reply, 2).1.err(), expected);
    }
}

#[test]
fn a_meta_reply_that_names_another_key_is_a_fault() {
    for (key, reply, expected) in [
        (&b"a"[..], &b"VA 1 ka O7\r\n1\r\n"[..], None),
        (b"a", b"VA 1 kb O7\r\n1\r\n", Some(Fault::WrongKey)),
        (b"a", b"HD kab O7\r\n", Some(Fault::WrongKey)),
        (b"YSBi", b"HD kYSBi b O7\r\n", None),
        (b"YSBi", b"HD kYSBj b O7\r\n", Some(Fault::WrongKey)),
    ] {
        let mut pipeline = Pipeline::new(1000);
        pipeline.expect(ExpectedReply::Meta { opaque: 7, key_hash: KeyHash::of(key) });
        assert_eq!(feed_in_pieces(pipeline, reply, 2).1.err(), expected);
    }
}

#[test]
fn a_quiet_batch_names_the_requests_that_failed() {
    let mut pipeline = Pipeline::new(1000);
    pipeline.expect(ExpectedReply::Quiet { first_opaque: 10, count: 3 });
    let (_, progress) =
        feed_in_pieces(pipeline, b"NS O11\r\nSERVER_ERROR object too large\r\nMN\r\n", 3);
    let Ok(ReplyProgress::Complete(Reply::Quiet(failed_replies, refusals))) = progress else {
        panic!("{progress:?}")
    };
    assert_eq!(failed_replies, [(1, MetaCode::NotStored)]);
    assert_eq!(refusals[0].message, "object too large");
}

#[test]
fn a_large_body_can_be_received_into_its_target() {
    let mut pipeline = pipeline_awaiting_get(&[b"a"]);
    pipeline.feed(b"VALUE a 3 10\r\n0123");
    assert_eq!(pipeline.poll(), Ok(ReplyProgress::Incomplete(8)));
    let partial_value = pipeline.partial_value().unwrap();
    let mut target = vec![0; partial_value.value_bytes];
    assert_eq!(pipeline.move_partial_value(&mut target), 4);
    assert_eq!(&target[..4], b"0123");
    pipeline.feed(b"\r\nEND\r\n");
    assert_eq!(pipeline.poll(), Ok(ReplyProgress::Complete(Reply::Values)));
    pipeline.release();
    assert!(pipeline.is_clean());
}
