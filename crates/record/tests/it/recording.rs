//! Recorded requests as they come out of the folder again: bounds, threads, processes, faults of the disk.

use std::path::Path;
use std::time::{Duration, Instant};

use glasscache_record::{
    FileFormat, FolderLog, Options, Parent, ParentPatterns, Recorder, read_folder,
};
use glasscache_sim::trace::log::{NONE, RequestLog};

fn new_recorder(folder: &Path, change: impl FnOnce(&mut Options)) -> Recorder {
    let mut options = Options::new(folder);
    change(&mut options);
    Recorder::open(options).unwrap()
}

/// Ends the recording, however long a busy machine takes for it.
fn close_recorder(recorder: &Recorder) {
    let deadline = Instant::now() + Duration::from_mins(1);
    while !recorder.close() {
        assert!(Instant::now() < deadline, "the log stays incomplete");
    }
}

fn keys_of_request(log: &RequestLog, request_index: usize) -> Vec<&str> {
    let key = |&item: &u32| log.items.keys[item as usize].as_str();
    log.requests.items_of(request_index).iter().map(key).collect()
}

/// Records a request that reads the keys one after the other; values have as many bytes as the key.
fn record_reads(recorder: &Recorder, keys: &[&str]) {
    let request = recorder.begin_request().unwrap();
    for key in keys {
        let recorded_reads = request.begin_read([(key.as_bytes(), None)]);
        request.set_size(recorded_reads, 0, key.len());
        request.end_call();
    }
    request.finish();
}

#[test]
fn a_log_holds_each_request_with_its_items_in_order_and_with_repeats() {
    for format in [FileFormat::Parquet, FileFormat::JsonLines] {
        let folder = tempfile::tempdir().unwrap();
        let recorder = new_recorder(folder.path(), |options| {
            options.format = format;
            options.parents = ParentPatterns::parse(["course:{id}/lesson:{n}"]).unwrap();
        });
        let request = recorder.begin_request().unwrap();
        request.set_page(b"course:1/lesson:2");
        request.set_route("lesson");
        let parent = Parent { key: b"a", is_named: true };
        let recorded_reads = request.begin_read([(b"a", None), (b"b", Some(parent))]);
        request.set_size(recorded_reads, 1, 77);
        request.set_size(recorded_reads, 2, 78);
        request.end_call();
        request.begin_write();
        for (key, ttl_s) in [("b", 60), ("b", 90), ("never read", 30), ("a", 0)] {
            request.note_ttl(key.as_bytes(), ttl_s);
        }
        request.end_call();
        request.begin_read([(b"a".as_slice(), None)]);
        request.end_call();
        drop(request);
        record_reads(&recorder, &[]);
        close_recorder(&recorder);
        let log = read_folder(folder.path()).unwrap().log;
        assert_eq!(log.requests.len(), 2, "{format:?}");
        assert_eq!(keys_of_request(&log, 0), ["a", "b", "a"]);
        assert!(keys_of_request(&log, 1).is_empty());
        assert_eq!(log.items.keys, ["a", "b", "course:1/lesson:2", "course:1"]);
        assert_eq!(log.items.parents, [NONE, 0, 3, NONE]);
        assert_eq!(log.items.sizes, [0, 77, 0, 0]);
        assert_eq!(log.items.ttls_s, [0, 90]);
        assert_eq!(log.requests.pages, [2, NONE]);
        assert_eq!(log.requests.route_names, ["lesson"]);
        assert_eq!(log.requests.numbers, [0, 1]);
        let meta_json = std::fs::read(folder.path().join("meta.json")).unwrap();
        let meta: serde_json::Value = serde_json::from_slice(&meta_json).unwrap();
        assert_eq!(meta["instances"]["0"]["writes"], 1);
        assert_eq!(meta["instances"]["0"]["requests"], 2);
        assert_eq!(recorder.stats().recorded, 2);
    }
}

#[test]
fn base_time_leaves_out_the_union_of_pending_calls() {
    let folder = tempfile::tempdir().unwrap();
    let recorder = new_recorder(folder.path(), |_| {});
    let request = recorder.begin_request().unwrap();
    let pause = || std::thread::sleep(Duration::from_millis(20));
    let started_at = Instant::now();
    pause();
    request.begin_read([(b"a".as_slice(), None)]);
    pause();
    request.begin_read([(b"b".as_slice(), None)]);
    pause();
    request.end_call();
    pause();
    request.end_call();
    let time_in_calls_min = Duration::from_millis(60);
    request.finish();
    let total_time = started_at.elapsed();
    close_recorder(&recorder);
    let base_us = read_folder(folder.path()).unwrap().log.requests.base_times_us[0];
    let base_time = Duration::from_micros(base_us.into());
    assert!(
        base_time >= Duration::from_millis(20) && base_time + time_in_calls_min <= total_time,
        "{base_time:?} of {total_time:?}"
    );
}

#[test]
fn threads_record_requests_that_stay_whole_over_several_parts() {
    let folder = tempfile::tempdir().unwrap();
    let recorder = new_recorder(folder.path(), |options| options.rotate_bytes = 20_000);
    std::thread::scope(|scope| {
        for thread_index in 0..4 {
            let recorder = &recorder;
            scope.spawn(move || {
                for number in 0..500 {
                    let keys: Vec<String> = (0..number % 7)
                        .map(|key_index| format!("t{thread_index}:{number}:{key_index}"))
                        .collect();
                    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
                    record_reads(recorder, &keys);
                }
            });
        }
    });
    close_recorder(&recorder);
    let stats = recorder.stats();
    assert!(stats.parts > 5 && stats.dropped == 0, "{stats:?}");
    let log = read_folder(folder.path()).unwrap().log;
    assert_eq!(log.requests.len(), 2000);
    assert!(log.requests.times_us.is_sorted());
    let mut requests_with_keys = vec![0; 4];
    for request_index in 0..log.requests.len() {
        let keys = keys_of_request(&log, request_index);
        for (key_index, key) in keys.iter().enumerate() {
            let key_fields: Vec<&str> = key.split(':').collect();
            let number: usize = key_fields[1].parse().unwrap();
            assert_eq!(keys.len(), number % 7, "{key}");
            assert_eq!(key_fields[2], key_index.to_string());
            assert_eq!(key_fields[1], keys[0].split(':').nth(1).unwrap());
            requests_with_keys[key_fields[0][1..].parse::<usize>().unwrap()] +=
                usize::from(key_index == 0);
        }
    }
    let expected_requests = (0..500).filter(|number| number % 7 > 0).count();
    assert_eq!(requests_with_keys, [expected_requests; 4]);
}

#[test]
fn recorders_of_one_folder_have_instances_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let (first_recorder, second_recorder) =
        (new_recorder(folder.path(), |_| {}), new_recorder(folder.path(), |_| {}));
    // The instance is claimed with the first request that is written, so both must be alive then.
    record_reads(&first_recorder, &["a", "shared"]);
    record_reads(&second_recorder, &["shared", "b"]);
    close_recorder(&first_recorder);
    close_recorder(&second_recorder);
    let third_recorder = new_recorder(folder.path(), |_| {});
    record_reads(&third_recorder, &["c"]);
    close_recorder(&third_recorder);
    let log = read_folder(folder.path()).unwrap().log;
    assert_eq!(log.requests.len(), 3);
    let mut instances = log.requests.instances.clone();
    instances.sort_unstable();
    assert!(instances == [0, 0, 1] || instances == [0, 0, 0], "{instances:?}");
    assert_eq!(log.items.keys.iter().filter(|key| *key == "shared").count(), 1);
}

#[test]
fn parents_that_form_a_cycle_only_across_parts_leave_the_log_readable() {
    let folder = tempfile::tempdir().unwrap();
    for (key, parent_key) in [(b"a", b"b"), (b"b", b"a")] {
        let recorder = new_recorder(folder.path(), |_| {});
        let request = recorder.begin_request().unwrap();
        let parent = Parent { key: parent_key, is_named: true };
        request.begin_read([(key, Some(parent))]);
        request.end_call();
        request.finish();
        close_recorder(&recorder);
    }
    let log = read_folder(folder.path()).unwrap().log;
    assert_eq!(log.requests.len(), 2);
    let items_with_parent = log.items.parents.iter().filter(|&&parent| parent != NONE);
    assert_eq!(items_with_parent.count(), 1);
}

#[test]
fn a_folder_that_cannot_be_written_stops_the_recorder_and_not_the_requests() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "not a folder").unwrap();
    let recorder = new_recorder(&file, |_| {});
    record_reads(&recorder, &["a"]);
    let deadline = Instant::now() + Duration::from_secs(10);
    while recorder.begin_request().is_some() {
        assert!(Instant::now() < deadline, "the recorder goes on");
        std::thread::sleep(Duration::from_millis(1));
    }
    let warning = recorder.take_warning().unwrap();
    assert!(warning.contains("stopped") && warning.contains("file"), "{warning}");
    assert_eq!(recorder.take_warning(), None);
    // What was submitted before it stopped is counted as dropped by its thread.
    close_recorder(&recorder);
    let stats = recorder.stats();
    assert_eq!((stats.dropped, stats.recorded), (stats.requests, 0));
    assert!(stats.dropped >= 2, "{stats:?}");
}

#[test]
fn requests_beyond_the_memory_are_dropped_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let recorder = new_recorder(folder.path(), |options| {
        options.memory_bytes = 10_000;
        options.rotate_bytes = 10_000;
    });
    let key = "k".repeat(200);
    for _ in 0..1000 {
        record_reads(&recorder, &[key.as_str(); 10]);
    }
    let too_large_request = recorder.begin_request().unwrap();
    for _ in 0..100_000 {
        too_large_request.begin_read([(key.as_bytes(), None)]);
        too_large_request.end_call();
    }
    too_large_request.finish();
    close_recorder(&recorder);
    let stats = recorder.stats();
    assert_eq!(stats.recorded + stats.dropped, 1001);
    assert!(stats.dropped > 1, "{stats:?}");
    let log = read_folder(folder.path()).unwrap().log;
    assert_eq!(log.requests.len() as u64, stats.recorded);
}

#[test]
fn a_part_is_written_before_it_needs_all_the_memory() {
    let folder = tempfile::tempdir().unwrap();
    let recorder = new_recorder(folder.path(), |options| {
        options.memory_bytes = 10_000;
        options.rotate_bytes = 10_000;
    });
    let key = "k".repeat(200);
    let deadline = Instant::now() + Duration::from_secs(10);
    while recorder.stats().parts < 2 {
        assert!(Instant::now() < deadline, "{:?}", recorder.stats());
        record_reads(&recorder, &[key.as_str(); 10]);
    }
}

#[test]
fn a_part_is_written_when_it_is_old() {
    let folder = tempfile::tempdir().unwrap();
    let recorder = new_recorder(folder.path(), |options| {
        options.rotate_after = Duration::from_millis(10);
    });
    record_reads(&recorder, &["a"]);
    let deadline = Instant::now() + Duration::from_secs(10);
    while recorder.stats().parts == 0 {
        assert!(Instant::now() < deadline, "no part is written");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(read_folder(folder.path()).unwrap().log.requests.len(), 1);
}

#[test]
fn parts_in_the_folder_of_a_single_log_are_named_as_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let recorder = new_recorder(folder.path(), |_| {});
    record_reads(&recorder, &["a"]);
    close_recorder(&recorder);
    for stem in ["items", "requests"] {
        let part = folder.path().join(format!("{stem}-0-000000.parquet"));
        std::fs::copy(part, folder.path().join(format!("{stem}.parquet"))).unwrap();
    }
    let folder_log = read_folder(folder.path()).unwrap();
    assert_eq!(folder_log.log.requests.len(), 1);
    let [left_out] = &folder_log.left_out[..] else { panic!("{:?}", folder_log.left_out) };
    assert_eq!(left_out.name, "requests-0-000000.parquet");
    assert!(left_out.reason.contains("requests.parquet is read instead"));
}

#[test]
fn an_incomplete_part_is_left_out_and_an_empty_folder_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let error = read_folder(&folder.path().join("absent")).unwrap_err();
    assert!(error.to_string().contains("does not exist; a request log is a folder"), "{error}");
    let error = read_folder(folder.path()).unwrap_err().to_string();
    assert!(error.contains("has no requests.parquet"), "{error}");
    let recorder = new_recorder(folder.path(), |options| {
        options.format = FileFormat::JsonLines;
    });
    record_reads(&recorder, &["a"]);
    close_recorder(&recorder);
    std::fs::write(folder.path().join("requests-0-000007.jsonl"), "{}").unwrap();
    std::fs::write(folder.path().join("requests-0-000008.jsonl.tmp"), "{}").unwrap();
    let folder_log = read_folder(folder.path()).unwrap();
    assert_eq!(folder_log.log.requests.len(), 1);
    assert_eq!(
        part_messages(&folder_log),
        [
            "requests-0-000007.jsonl (2 bytes) was skipped: items-0-000007.jsonl is missing; copy it into the folder",
            "requests-0-000008.jsonl.tmp (2 bytes) was skipped: the recorder did not complete it; close the recorder before \
             you read its log",
        ]
    );
}

/// Records three parts of one request each and truncates a file of the second to at most `file_bytes_max` bytes.
fn log_with_a_truncated_part(
    format: FileFormat,
    stem: &str,
    file_bytes_max: u64,
) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for key in ["a", "b", "c"] {
        let recorder = new_recorder(folder.path(), |options| options.format = format);
        record_reads(&recorder, &[key]);
        close_recorder(&recorder);
    }
    let extension = match format {
        FileFormat::Parquet => "parquet",
        FileFormat::JsonLines => "jsonl",
    };
    let file_name = format!("{stem}-0-000001.{extension}");
    let file = std::fs::OpenOptions::new().write(true).open(folder.path().join(file_name)).unwrap();
    file.set_len(file_bytes_max.min(file.metadata().unwrap().len() - 1)).unwrap();
    folder
}

fn part_messages(folder_log: &FolderLog) -> Vec<String> {
    folder_log.left_out.iter().map(ToString::to_string).collect()
}

#[test]
fn a_part_that_is_truncated_is_left_out_by_name_and_the_others_are_read() {
    for (stem, file_bytes_max) in [
        ("requests", u64::MAX),
        ("requests", 100),
        ("requests", 5),
        ("requests", 2),
        ("requests", 0),
        ("items", u64::MAX),
    ] {
        let folder = log_with_a_truncated_part(FileFormat::Parquet, stem, file_bytes_max);
        let folder_log = read_folder(folder.path()).unwrap();
        assert_eq!(folder_log.log.items.keys, ["a", "c"], "{stem} {file_bytes_max}");
        assert_eq!(folder_log.log.requests.len(), 2);
        let requests_path = folder.path().join("requests-0-000001.parquet");
        let requests_bytes = requests_path.metadata().unwrap().len();
        let expected = format!(
            "requests-0-000001.parquet ({requests_bytes} bytes) was skipped: {stem}-0-000001.parquet: not a valid \
             Parquet file: it is truncated, and without its footer none of its rows can be read; copy the file again"
        );
        assert_eq!(part_messages(&folder_log), [expected], "{stem} {file_bytes_max}");
    }
}

#[test]
fn items_of_a_part_that_are_cut_within_a_line_leave_that_part_out() {
    let folder = log_with_a_truncated_part(FileFormat::JsonLines, "items", 9);
    let folder_log = read_folder(folder.path()).unwrap();
    assert_eq!(folder_log.log.items.keys, ["a", "c"]);
    let messages = part_messages(&folder_log);
    assert_eq!(messages.len(), 1, "{messages:?}");
    assert!(
        messages[0].contains("items-0-000001.jsonl, row 1: not a valid JSON object"),
        "{messages:?}"
    );
}

#[test]
fn a_log_without_a_complete_part_is_an_error_with_the_reason_and_so_is_a_part_of_another_kind() {
    let folder = log_with_a_truncated_part(FileFormat::Parquet, "requests", 50);
    for number in [0, 2] {
        std::fs::remove_file(folder.path().join(format!("requests-0-{number:06}.parquet")))
            .unwrap();
    }
    let error = read_folder(folder.path()).unwrap_err().to_string();
    assert!(
        error.contains(
            "failed: no part of the log is complete; requests-0-000001.parquet (50 bytes)"
        ),
        "{error}"
    );
    let foreign_part = folder.path().join("requests-0-000001.parquet");
    std::fs::write(foreign_part, "PK not a Parquet file at all").unwrap();
    let error = read_folder(folder.path()).unwrap_err().to_string();
    assert!(error.contains("not a valid Parquet file"), "{error}");
}

#[test]
fn invalid_options_are_refused() {
    for change in [
        (|options: &mut Options| options.sample = 1.5) as fn(&mut Options),
        |options| options.sample = f64::NAN,
        |options| options.rotate_after = Duration::ZERO,
        |options| options.rotate_bytes = 0,
        |options| options.memory_bytes = 1,
    ] {
        let mut options = Options::new("never-made");
        change(&mut options);
        assert!(Recorder::open(options).is_err());
    }
    assert!(!Path::new("never-made").exists());
}
