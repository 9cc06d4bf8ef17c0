//! Replies in binary, made by the server's writer, received in pieces of every length.

use glasscache_protocol::binary::{
    OpcodeAndOpaque, Status, StoredItem, opcode, write_error, write_number, write_stat,
    write_success, write_text, write_value_head,
};
use glasscache_protocol::meta::reply::MetaCode;
use glasscache_protocol::meta::request::{Arithmetic, WireKey};
use glasscache_protocol::text::reply::{ErrorLineKind, WriteStatus};
use glasscache_protocol::text::request::StoreMode;

use super::super::{Fault, Pipeline, Reply, ReplyProgress};
use crate::request::{CommandSet, Item, Request, RequestWriter, Unsupported};

/// The first opaque, so near the end of the range that those of a batch wrap around.
const FIRST_OPAQUE: u32 = u32::MAX - 1;

fn opcode_and_opaque(opcode: u8, index: u32) -> OpcodeAndOpaque {
    OpcodeAndOpaque { opcode, opaque: FIRST_OPAQUE.wrapping_add(index) }
}

fn key(bytes: &[u8]) -> WireKey<'_> {
    WireKey { bytes, is_base64: false }
}

/// A pipeline that expects the reply to a request, and the bytes of the request.
fn pipeline_expecting(request: Request<'_>) -> (Pipeline, Vec<u8>) {
    let (mut pipeline, mut out, mut next_opaque) = (Pipeline::new(1000), Vec::new(), FIRST_OPAQUE);
    let mut writer = RequestWriter {
        command_set: CommandSet::Binary,
        pipeline: &mut pipeline,
        out: &mut out,
        next_opaque: &mut next_opaque,
    };
    request.write(&mut writer).unwrap();
    (pipeline, out)
}

fn push_value(out: &mut Vec<u8>, index: u32, key: &[u8], body: &[u8]) {
    let item = StoredItem { key, flags: 7, value_bytes: body.len() as u32, cas: 9 };
    write_value_head(out, opcode_and_opaque(opcode::GETK, index), &item);
    out.extend_from_slice(body);
}

/// A reply, and its values with the index of their key.
type ParseResult = Result<(Reply, Vec<(usize, Vec<u8>)>), Fault>;

/// The reply, which must be the same however its bytes are cut.
fn reply_to(request: Request<'_>, response_bytes: &[u8]) -> ParseResult {
    let parse_in_pieces = |piece_bytes: usize| {
        let (mut pipeline, _) = pipeline_expecting(request);
        for piece in response_bytes.chunks(piece_bytes) {
            match pipeline.poll()? {
                ReplyProgress::Incomplete(_) => pipeline.feed(piece),
                progress => panic!("{progress:?} before the end"),
            }
        }
        let ReplyProgress::Complete(reply) = pipeline.poll()? else { panic!("incomplete") };
        let found_values = pipeline.found_values().iter();
        let values = found_values.map(|found| (found.key_index, pipeline.body(found).to_vec()));
        let values = values.collect();
        pipeline.release();
        assert!(pipeline.is_clean());
        Ok((reply, values))
    };
    let whole_result = parse_in_pieces(response_bytes.len());
    for piece_bytes in [1, 7, 24, 25] {
        assert_eq!(parse_in_pieces(piece_bytes), whole_result, "pieces of {piece_bytes}");
    }
    whole_result
}

fn store_request(mode: StoreMode) -> Request<'static> {
    Request::Store {
        mode,
        item: Item { key: WireKey { bytes: b"k", is_base64: false }, flags: 0, body: b"v" },
        exptime: 0,
        noreply: false,
    }
}

#[test]
fn values_of_many_keys_come_in_their_order_and_end_with_the_noop() {
    let keys: &[&[u8]] = &[b"a", b"b", b"c"];
    let request = Request::GetMany { prefix: b"p:", keys, cas: false };
    let mut response_bytes = Vec::new();
    push_value(&mut response_bytes, 0, b"p:a", b"one");
    push_value(&mut response_bytes, 2, b"p:c", b"");
    write_success(&mut response_bytes, opcode_and_opaque(opcode::NOOP, 3), 0);
    let (reply, values) = reply_to(request, &response_bytes).unwrap();
    assert_eq!(reply, Reply::Values);
    assert_eq!(values, [(0, b"one".to_vec()), (2, Vec::new())]);
}

#[test]
fn a_value_of_another_key_or_opaque_or_twice_is_a_fault() {
    let keys: &[&[u8]] = &[b"a", b"b"];
    let request = Request::GetMany { prefix: b"", keys, cas: false };
    let fault_of = |index: u32, key: &[u8], count: usize| {
        let mut response_bytes = Vec::new();
        for _ in 0..count {
            push_value(&mut response_bytes, index, key, b"v");
        }
        write_success(&mut response_bytes, opcode_and_opaque(opcode::NOOP, 2), 0);
        let (mut pipeline, _) = pipeline_expecting(request);
        pipeline.feed(&response_bytes);
        pipeline.poll().unwrap_err()
    };
    assert_eq!(fault_of(0, b"b", 1), Fault::WrongKey);
    assert_eq!(fault_of(5, b"a", 1), Fault::WrongOpaque);
    assert_eq!(fault_of(1, b"b", 2), Fault::WrongKey);
}

#[test]
fn a_single_read_is_a_value_a_miss_or_a_refusal() {
    let request = Request::Get { key: key(b"a"), cas: true };
    let (mut pipeline, request_bytes) = pipeline_expecting(request);
    assert_eq!(request_bytes.len(), 25);
    let mut hit_bytes = Vec::new();
    push_value(&mut hit_bytes, 0, b"a", b"body");
    pipeline.feed(&hit_bytes);
    assert_eq!(pipeline.poll(), Ok(ReplyProgress::Complete(Reply::Values)));
    assert_eq!(pipeline.found_values()[0].cas, 9);
    let mut miss_bytes = Vec::new();
    write_error(&mut miss_bytes, opcode_and_opaque(opcode::GETK, 0), Status::NotFound);
    assert_eq!(reply_to(request, &miss_bytes), Ok((Reply::Values, vec![])));
    let mut refusal_bytes = Vec::new();
    write_error(&mut refusal_bytes, opcode_and_opaque(opcode::GETK, 0), Status::AuthFailure);
    let (reply, _) = reply_to(request, &refusal_bytes).unwrap();
    assert!(matches!(reply, Reply::Refused(refusal) if refusal.kind == ErrorLineKind::Client));
}

#[test]
fn outcomes_are_named_as_in_text() {
    for (mode, opcode, status, outcome) in [
        (StoreMode::Set, opcode::SET, None, WriteStatus::Done),
        (StoreMode::Add, opcode::ADD, Some(Status::Exists), WriteStatus::NotStored),
        (StoreMode::Replace, opcode::REPLACE, Some(Status::NotFound), WriteStatus::NotStored),
        (StoreMode::Append, opcode::APPEND, Some(Status::NotStored), WriteStatus::NotStored),
        (StoreMode::Cas(4), opcode::SET, Some(Status::Exists), WriteStatus::Exists),
        (StoreMode::Cas(4), opcode::SET, Some(Status::NotFound), WriteStatus::NotFound),
    ] {
        let mut response_bytes = Vec::new();
        match status {
            None => write_success(&mut response_bytes, opcode_and_opaque(opcode, 0), 5),
            Some(status) => write_error(&mut response_bytes, opcode_and_opaque(opcode, 0), status),
        }
        let reply = reply_to(store_request(mode), &response_bytes).map(|(reply, _)| reply);
        assert_eq!(reply, Ok(Reply::Status(outcome)), "{mode:?}");
    }
}

#[test]
fn a_refusal_for_the_length_is_known_as_such() {
    let mut response_bytes = Vec::new();
    write_error(&mut response_bytes, opcode_and_opaque(opcode::SET, 0), Status::TooLarge);
    let (reply, _) = reply_to(store_request(StoreMode::Set), &response_bytes).unwrap();
    assert!(matches!(reply, Reply::Refused(refusal) if refusal.is_too_large()));
}

#[test]
fn quiet_writes_report_what_was_not_done_by_its_index() {
    let item = |bytes| Item { key: key(bytes), flags: 0, body: b"v" };
    let items = [item(b"a"), item(b"b"), item(b"c")];
    let request =
        Request::StoreMany { mode: StoreMode::Add, items: &items, exptime: 0, quiet: true };
    let mut response_bytes = Vec::new();
    write_error(&mut response_bytes, opcode_and_opaque(opcode::ADD, 1), Status::Exists);
    write_error(&mut response_bytes, opcode_and_opaque(opcode::ADD, 2), Status::OutOfMemory);
    write_success(&mut response_bytes, opcode_and_opaque(opcode::NOOP, 3), 0);
    let (reply, _) = reply_to(request, &response_bytes).unwrap();
    let Reply::Quiet(failed_replies, refusals) = reply else { panic!("{reply:?}") };
    assert_eq!(failed_replies, [(1, MetaCode::NotStored)]);
    assert_eq!(refusals.len(), 1);
}

#[test]
fn numbers_rows_and_the_version_are_read() {
    let arithmetic = Arithmetic { delta: 1, is_decrement: true, initial: None };
    let request = Request::Arithmetic { key: key(b"n"), arithmetic, noreply: false };
    let mut response_bytes = Vec::new();
    write_number(&mut response_bytes, opcode_and_opaque(opcode::DECREMENT, 0), 300, 1);
    let reply = reply_to(request, &response_bytes).map(|(reply, _)| reply);
    assert_eq!(reply, Ok(Reply::Number(300)));

    let mut response_bytes = Vec::new();
    write_stat(&mut response_bytes, opcode_and_opaque(opcode::STAT, 0), b"pid", b"77");
    write_stat(&mut response_bytes, opcode_and_opaque(opcode::STAT, 0), b"", b"");
    let reply = reply_to(Request::Stats { argument: b"" }, &response_bytes).map(|(reply, _)| reply);
    assert_eq!(reply, Ok(Reply::Rows(vec![("pid".into(), "77".into())])));

    let mut response_bytes = Vec::new();
    write_text(&mut response_bytes, opcode_and_opaque(opcode::VERSION, 0), b"1.6.45");
    let reply = reply_to(Request::Version, &response_bytes).map(|(reply, _)| reply);
    assert_eq!(reply, Ok(Reply::Version("1.6.45".into())));
}

#[test]
fn a_line_of_text_or_a_value_beyond_the_bound_is_a_fault() {
    let request = Request::Get { key: key(b"a"), cas: false };
    let (mut pipeline, _) = pipeline_expecting(request);
    pipeline.feed(b"ERROR\r\n");
    assert!(matches!(pipeline.poll(), Err(Fault::Binary(_))));
    let (mut pipeline, _) = pipeline_expecting(request);
    let mut response_bytes = Vec::new();
    push_value(&mut response_bytes, 0, b"a", &[b'x'; 1001]);
    pipeline.feed(&response_bytes);
    assert!(matches!(pipeline.poll(), Err(Fault::TooLong { .. })));
}

#[test]
fn a_negative_exptime_is_a_time_of_the_past_and_keys_go_as_they_are() {
    let touch = Request::Touch {
        key: WireKey { bytes: b"YSBi", is_base64: true },
        exptime: -1,
        noreply: false,
    };
    let (_, request_bytes) = pipeline_expecting(touch);
    assert_eq!(&request_bytes[24..], b"\x00\x27\x8d\x01a b");
}

#[test]
fn a_request_unsupported_in_binary_writes_nothing() {
    for request in [
        store_request(StoreMode::Cas(0)),
        Request::Inspect { key: key(b"a") },
        Request::FlushPrefix { prefix: key(b"a") },
    ] {
        let (mut pipeline, mut out, mut next_opaque) = (Pipeline::new(1000), Vec::new(), 0);
        let mut writer = RequestWriter {
            command_set: CommandSet::Binary,
            pipeline: &mut pipeline,
            out: &mut out,
            next_opaque: &mut next_opaque,
        };
        assert!(matches!(request.write(&mut writer), Err(Unsupported(_))));
        assert!(out.is_empty() && pipeline.is_clean());
    }
}
