//! A trace or a request log as bytes, for another process of the same version: columns of little-endian numbers, each
//! with its length.
//!
//! This is not a file format. A cluster's workers receive what one process has read and checked, so that every
//! process replays the same numbers; a reader still refuses bytes that would make a replay index out of range.

use crate::TraceError;
use crate::replay::PreparedTrace;
use crate::trace::Effect;
use crate::trace::intern::InternedTrace;
use crate::trace::log::{
    CallTimes, CallsOfRequest, Items, NONE, RecordedCalls, RequestLog, Requests,
};
use crate::trace::timeline::{NO_OBJECT, Timeline};

/// The name of the bytes in an error, in place of a file.
const SOURCE_NAME: &str = "packed trace";

/// Appends columns to bytes.
#[derive(Default)]
struct Packer(Vec<u8>);

impl Packer {
    fn append_column<const WIDTH: usize>(
        &mut self,
        numbers: impl ExactSizeIterator<Item = [u8; WIDTH]>,
    ) {
        self.0.extend((numbers.len() as u64).to_le_bytes());
        self.0.reserve(numbers.len() * WIDTH);
        for bytes in numbers {
            self.0.extend(bytes);
        }
    }

    fn append_texts(&mut self, texts: &[String]) {
        self.append_column(texts.iter().map(|text| (text.len() as u64).to_le_bytes()));
        for text in texts {
            self.0.extend(text.as_bytes());
        }
    }

    fn append_u64s(&mut self, numbers: &[u64]) {
        self.append_column(numbers.iter().map(|number| number.to_le_bytes()));
    }

    fn append_u32s(&mut self, numbers: &[u32]) {
        self.append_column(numbers.iter().map(|number| number.to_le_bytes()));
    }
}

/// Takes columns off the front of bytes.
struct Unpacker<'b>(&'b [u8]);

impl<'b> Unpacker<'b> {
    fn unpack_bytes(&mut self, count: usize) -> Result<&'b [u8], TraceError> {
        let (bytes, rest) = self
            .0
            .split_at_checked(count)
            .ok_or_else(|| unpack_error("it ends within a column"))?;
        self.0 = rest;
        Ok(bytes)
    }

    fn unpack_length(&mut self) -> Result<usize, TraceError> {
        let bytes = self.unpack_bytes(8)?.try_into().map_err(unpack_error)?;
        usize::try_from(u64::from_le_bytes(bytes)).map_err(unpack_error)
    }

    fn unpack_column<const WIDTH: usize, T>(
        &mut self,
        decode: impl Fn([u8; WIDTH]) -> T,
    ) -> Result<Vec<T>, TraceError> {
        let count = self.unpack_length()?;
        let bytes = self.unpack_bytes(count.saturating_mul(WIDTH))?;
        let (numbers, _) = bytes.as_chunks::<WIDTH>();
        Ok(numbers.iter().map(|bytes| decode(*bytes)).collect())
    }

    fn unpack_texts(&mut self) -> Result<Vec<String>, TraceError> {
        let lengths = self.unpack_u64s()?;
        let unpack_text = |length: &u64| {
            let bytes = self.unpack_bytes(usize::try_from(*length).map_err(unpack_error)?)?;
            Ok(str::from_utf8(bytes).map_err(unpack_error)?.to_owned())
        };
        lengths.iter().map(unpack_text).collect()
    }

    fn unpack_u64s(&mut self) -> Result<Vec<u64>, TraceError> {
        self.unpack_column(u64::from_le_bytes)
    }

    fn unpack_u32s(&mut self) -> Result<Vec<u32>, TraceError> {
        self.unpack_column(u32::from_le_bytes)
    }
}

fn unpack_error(reason: impl std::fmt::Display) -> TraceError {
    TraceError::file(SOURCE_NAME, reason)
}

fn require_valid(is_valid: bool, requirement: &str) -> Result<(), TraceError> {
    if is_valid { Ok(()) } else { Err(unpack_error(requirement)) }
}

/// Packs a trace that is ready to be replayed.
pub fn pack_trace(trace: &PreparedTrace) -> Vec<u8> {
    let mut packer = Packer::default();
    packer.append_u32s(trace.ids());
    packer.append_u64s(trace.keys());
    packer.append_u32s(trace.sizes());
    if let Some(timeline) = trace.timeline() {
        packer.append_u64s(&timeline.times);
        packer.append_u64s(&timeline.ttls);
        packer.append_column(timeline.effects.iter().map(|&effect| [effect as u8]));
        packer.append_u32s(&timeline.replaced_ids);
    }
    packer.0
}

/// Unpacks what [`pack_trace`] packed.
///
/// # Errors
/// Bytes that end early, or whose columns do not belong together.
pub fn unpack_trace(bytes: &[u8]) -> Result<PreparedTrace, TraceError> {
    let mut unpacker = Unpacker(bytes);
    let (ids, keys, sizes) =
        (unpacker.unpack_u32s()?, unpacker.unpack_u64s()?, unpacker.unpack_u32s()?);
    let is_object = |id: &u32| (*id as usize) < keys.len();
    require_valid(ids.iter().all(is_object), "a row of an unknown object")?;
    require_valid(sizes.is_empty() || sizes.len() == keys.len(), "a size for each object or none")?;
    let timeline = if unpacker.0.is_empty() {
        None
    } else {
        let timeline = Timeline {
            times: unpacker.unpack_u64s()?,
            ttls: unpacker.unpack_u64s()?,
            effects: unpacker.unpack_column(effect_of)?,
            replaced_ids: unpacker.unpack_u32s()?,
        };
        let column_lengths = [timeline.times.len(), timeline.ttls.len(), timeline.effects.len()];
        require_valid(column_lengths == [ids.len(); 3], "a time for each row")?;
        let replaced = &timeline.replaced_ids;
        require_valid(
            replaced.is_empty() || replaced.len() == ids.len(),
            "a replaced object for each row or none",
        )?;
        let is_replaceable = |id: &u32| *id == NO_OBJECT || is_object(id);
        require_valid(
            replaced.iter().all(is_replaceable),
            "a row that replaces an unknown object",
        )?;
        Some(timeline)
    };
    Ok(PreparedTrace::new(InternedTrace { ids, keys, sizes, timeline, ..InternedTrace::default() }))
}

fn effect_of([code]: [u8; 1]) -> Effect {
    let effects = [Effect::Request, Effect::Set, Effect::Delete];
    let is_code = |effect: &Effect| *effect as u8 == code;
    effects.into_iter().find(is_code).unwrap_or(Effect::None)
}

/// Packs a request log.
pub fn pack_log(log: &RequestLog) -> Vec<u8> {
    let (items, requests) = (&log.items, &log.requests);
    let mut packer = Packer::default();
    packer.append_texts(&items.keys);
    packer.append_u32s(&items.parents);
    packer.append_u32s(&items.sizes);
    packer.append_u32s(&items.ttls_s);
    packer.append_texts(&items.changed.iter().cloned().collect::<Vec<_>>());
    packer.append_u64s(&requests.numbers);
    packer.append_u64s(&requests.times_us);
    packer.append_column(requests.instances.iter().map(|instance| instance.to_le_bytes()));
    packer.append_u32s(&requests.base_times_us);
    packer.append_u32s(&requests.pages);
    packer.append_u32s(&requests.routes);
    packer.append_texts(&requests.route_names);
    packer.append_column(requests.starts.iter().map(|&start| (start as u64).to_le_bytes()));
    packer.append_u32s(&requests.items);
    let truncated_after: Vec<u64> = log.truncated_after.into_iter().collect();
    packer.append_u64s(&truncated_after);
    append_calls(&mut packer, requests);
    packer.0
}

/// Appends what is known of the calls of each request: the number of its calls, or [`NONE`], three times, and all keys.
fn append_calls(packer: &mut Packer, requests: &Requests) {
    let calls = || (0..requests.len()).map(|index| requests.calls.of(index));
    let append_numbers = |packer: &mut Packer, number: fn(CallsOfRequest<'_>) -> u32| {
        let numbers: Vec<u32> = calls().map(|calls| calls.map_or(NONE, number)).collect();
        packer.append_u32s(&numbers);
    };
    append_numbers(packer, |(keys, _)| keys.len() as u32);
    append_numbers(packer, |(_, times)| times.wait_us);
    append_numbers(packer, |(_, times)| times.decode_us);
    append_numbers(packer, |(_, times)| times.writes);
    let keys: Vec<u32> = calls().flatten().flat_map(|(keys, _)| keys).copied().collect();
    packer.append_u32s(&keys);
}

/// What [`append_calls`] appended.
fn unpack_calls(
    unpacker: &mut Unpacker<'_>,
    request_count: usize,
) -> Result<RecordedCalls, TraceError> {
    let mut unpack = || unpacker.unpack_u32s();
    let [key_counts, waits_us, decodes_us, writes, keys] =
        [unpack()?, unpack()?, unpack()?, unpack()?, unpack()?];
    let lengths = [key_counts.len(), waits_us.len(), decodes_us.len(), writes.len()];
    require_valid(lengths == [request_count; 4], "the calls of each request")?;
    let (mut calls, mut keys_before) = (RecordedCalls::default(), 0);
    for index in 0..request_count {
        if key_counts[index] == NONE {
            continue;
        }
        let keys_end = keys_before + key_counts[index] as usize;
        let keys_of_calls = keys.get(keys_before..keys_end);
        require_valid(keys_of_calls.is_some(), "the keys of each call")?;
        let times = CallTimes {
            wait_us: waits_us[index],
            decode_us: decodes_us[index],
            writes: writes[index],
        };
        calls.push(index, keys_of_calls.map(|keys_of_calls| (keys_of_calls, times)));
        keys_before = keys_end;
    }
    Ok(calls)
}

/// Unpacks what [`pack_log`] packed.
///
/// # Errors
/// Bytes that end early, or whose columns do not belong together.
pub fn unpack_log(bytes: &[u8]) -> Result<RequestLog, TraceError> {
    let mut unpacker = Unpacker(bytes);
    let items = Items {
        keys: unpacker.unpack_texts()?,
        parents: unpacker.unpack_u32s()?,
        sizes: unpacker.unpack_u32s()?,
        ttls_s: unpacker.unpack_u32s()?,
        changed: unpacker.unpack_texts()?.into_iter().collect(),
    };
    let mut requests = Requests {
        numbers: unpacker.unpack_u64s()?,
        times_us: unpacker.unpack_u64s()?,
        instances: unpacker.unpack_column(u16::from_le_bytes)?,
        base_times_us: unpacker.unpack_u32s()?,
        pages: unpacker.unpack_u32s()?,
        routes: unpacker.unpack_u32s()?,
        route_names: unpacker.unpack_texts()?,
        starts: unpacker.unpack_column(|start| u64::from_le_bytes(start) as usize)?,
        items: unpacker.unpack_u32s()?,
        calls: RecordedCalls::default(),
    };
    let truncated_after = unpacker.unpack_u64s()?.first().copied();
    requests.calls = unpack_calls(&mut unpacker, requests.len())?;
    check_columns(&items, &requests)?;
    Ok(RequestLog { items, requests, truncated_after })
}

fn check_columns(items: &Items, requests: &Requests) -> Result<(), TraceError> {
    let (item_count, request_count) = (items.len(), requests.len());
    require_valid(
        [items.keys.len(), items.parents.len()] == [item_count; 2]
            && items.ttls_s.len() <= item_count,
        "a key and a parent for each item",
    )?;
    let column_lengths = [
        requests.numbers.len(),
        requests.times_us.len(),
        requests.instances.len(),
        requests.pages.len(),
        requests.routes.len(),
    ];
    require_valid(column_lengths == [request_count; 5], "every column for each request")?;
    let is_item = |item: &u32| (*item as usize) < item_count;
    let is_item_or_none = |item: &u32| *item == NONE || is_item(item);
    require_valid(
        items.parents.iter().all(is_item_or_none) && requests.pages.iter().all(is_item_or_none),
        "a parent or a page that is not an item",
    )?;
    require_valid(requests.items.iter().all(is_item), "a request of an unknown item")?;
    let starts = &requests.starts;
    require_valid(
        starts.len() == request_count + 1
            && starts.is_sorted()
            && starts.first() == Some(&0)
            && starts.last() == Some(&requests.items.len()),
        "a start for each request",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::PolicyKind;
    use crate::replay::Task;
    use crate::trace::generate::topic_tree::{TopicTreeConfig, topic_tree};
    use crate::trace::intern::Mode;
    use crate::trace::{Columns, InMemoryFile, Layout, TimeUnit, open_with};

    fn trace_of(csv: &'static str, mode: Mode) -> PreparedTrace {
        let layout = Layout { time_unit: Some(TimeUnit::Seconds), ..Layout::default() };
        let memory = InMemoryFile::new(csv.as_bytes());
        let mut stream = open_with("trace.csv", memory, Columns::ALL, &layout).unwrap();
        PreparedTrace::new(InternedTrace::read("trace.csv", &mut *stream, mode).unwrap())
    }

    fn miss_count(trace: &PreparedTrace, policy: PolicyKind) -> u64 {
        let task = Task { policy, capacity: 20, seed: 1 };
        task.run(trace, &|| true).unwrap().misses
    }

    #[test]
    fn unpacked_trace_replays_like_the_packed_one() {
        let with_ttls = "time,key,size,op,ttl\n1,1,10,get,2\n2,2,30,get,0\n9,1,10,get,2\n9,2,5,set,0\n10,2,5,get,0\n11,2,5,delete,0\n12,2,5,get,0\n";
        for (csv, mode) in [
            ("key,size\n1,10\n2,20\n1,10\n", Mode::Objects),
            ("key,size\n1,10\n2,20\n1,10\n", Mode::Bytes),
            (with_ttls, Mode::Bytes),
        ] {
            let trace = trace_of(csv, mode);
            let packed = pack_trace(&trace);
            let unpacked = unpack_trace(&packed).unwrap();
            assert_eq!(pack_trace(&unpacked), packed);
            assert_eq!(unpacked.requests(), trace.requests());
            assert_eq!(unpacked.timeline().is_some(), csv == with_ttls);
            for policy in [PolicyKind::Lru, PolicyKind::S3Fifo] {
                assert_eq!(miss_count(&unpacked, policy), miss_count(&trace, policy));
            }
        }
    }

    #[test]
    fn unpacked_log_equals_the_packed_one() {
        let mut log = topic_tree(&TopicTreeConfig {
            requests: 200,
            items: 100,
            ..TopicTreeConfig::default()
        });
        log.items.set_ttl_s(7, 60);
        assert_eq!(unpack_log(&pack_log(&log)).unwrap(), log);
        let empty = RequestLog {
            requests: Requests { starts: vec![0], ..Requests::default() },
            truncated_after: Some(3),
            ..RequestLog::default()
        };
        assert_eq!(unpack_log(&pack_log(&empty)).unwrap(), empty);
    }

    #[test]
    fn bytes_that_end_early_or_name_unknown_items_are_refused() {
        let log =
            topic_tree(&TopicTreeConfig { requests: 20, items: 30, ..TopicTreeConfig::default() });
        let packed_log = pack_log(&log);
        for end in (0..packed_log.len()).step_by(7) {
            assert!(unpack_log(&packed_log[..end]).is_err(), "{end}");
        }
        let mut log_with_unknown_item = log;
        log_with_unknown_item.requests.items[0] =
            u32::try_from(log_with_unknown_item.items.len()).unwrap();
        assert!(unpack_log(&pack_log(&log_with_unknown_item)).is_err());
        let packed_trace = pack_trace(&trace_of("key\n1\n2\n", Mode::Objects));
        assert!(unpack_trace(&packed_trace[..packed_trace.len() - 1]).is_err());
        let mut trace_with_unknown_object = packed_trace;
        trace_with_unknown_object[8] = 7;
        assert!(unpack_trace(&trace_with_unknown_object).is_err());
    }
}
