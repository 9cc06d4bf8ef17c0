//! Typed values: what is written is read again, and hostile bytes are refused in bounded memory.

use super::*;
use proptest::prelude::*;

const BYTES_MAX: usize = 1 << 20;

fn any_scalar() -> impl Strategy<Value = Typed<'static>> {
    let time_fields = (0u8..24, 0u8..60, 0u8..60, 0u32..1_000_000, any::<bool>(), 0usize..4);
    let time =
        time_fields.prop_map(|(hour, minute, second, microsecond, is_second_fold, zone_index)| {
            Time {
                hour,
                minute,
                second,
                microsecond,
                is_second_fold,
                zone: [
                    Zone::Naive,
                    Zone::Fixed(-3_600_000_000, None),
                    Zone::Fixed(1, Some("odd")),
                    Zone::Named("Europe/Vienna"),
                ][zone_index],
            }
        });
    let date_fields = (1u16..=9999, 1u8..=12, 1u8..=31);
    let date = date_fields.prop_map(|(year, month, day)| Date { year, month, day });
    prop_oneof![
        Just(Token::None),
        any::<bool>().prop_map(Token::Bool),
        any::<i64>().prop_map(Token::Int),
        any::<f64>().prop_map(Token::Float),
        Just(Token::BigInt(&[1, 2, 3, 4, 5, 6, 7, 8, 9])),
        Just(Token::Str("text")),
        Just(Token::Bytes(b"\0\xff")),
        Just(Token::ByteArray(b"")),
        Just(Token::Decimal("-0E+5")),
        any::<[u8; 16]>().prop_map(Token::Uuid),
        date.clone().prop_map(Token::Date),
        time.clone().prop_map(Token::Time),
        (date, time).prop_map(|(date, time)| Token::DateTime(date, time)),
        (-999_999_999i64..=999_999_999, 0u32..86_400, 0u32..1_000_000).prop_map(
            |(days, seconds, microseconds)| Token::Delta(Delta { days, seconds, microseconds })
        ),
    ]
    .prop_map(Typed::of)
}

/// Containers of every kind around scalars.
fn any_value() -> impl Strategy<Value = Typed<'static>> {
    any_scalar().prop_recursive(4, 40, 6, |item| {
        (prop::collection::vec(item, 0..6), 0usize..7).prop_map(|(mut items, container_kind)| {
            let item_count = items.len();
            let token = match container_kind {
                0 => Token::List(item_count),
                1 => Token::Tuple(item_count),
                2 => Token::Set(item_count),
                3 => Token::FrozenSet(item_count),
                4 => {
                    items.truncate(item_count / 2 * 2);
                    Token::Dict(item_count / 2)
                }
                5 => {
                    items = items
                        .into_iter()
                        .flat_map(|item| [Typed::of(Token::Str("field")), item])
                        .collect();
                    Token::Record("user", item_count)
                }
                _ => {
                    items = vec![Typed::of(Token::Int(3))];
                    Token::Enum("colour")
                }
            };
            Typed { token, items }
        })
    })
}

fn nested_lists(depth: usize) -> Vec<u8> {
    let mut bytes = [9, 1].repeat(depth);
    bytes.extend([9, 0]);
    bytes
}

#[test]
fn nesting_is_read_to_the_bound_and_no_deeper() {
    for (depth, is_accepted) in [(0, true), (DEPTH_MAX, true), (DEPTH_MAX + 1, false)] {
        let bytes = nested_lists(depth);
        assert_eq!(is_valid(&bytes, BYTES_MAX), is_accepted, "{depth}");
        assert_eq!(Typed::parse(&bytes, BYTES_MAX).is_some(), is_accepted);
    }
    assert!(!is_valid(&nested_lists(1_000_000), usize::MAX));
}

#[test]
fn more_values_than_the_bound_allows_are_refused() {
    let list_bytes =
        Typed { token: Token::List(99), items: vec![Typed::of(Token::None); 99] }.to_bytes();
    assert!(is_valid(&list_bytes, 100 * BYTES_PER_VALUE));
    assert!(!is_valid(&list_bytes, 100 * BYTES_PER_VALUE - 1));
}

#[test]
fn a_count_beyond_the_bytes_that_follow_is_refused() {
    for tag in [9, 10, 11, 12, 13] {
        assert!(!is_valid(&[tag, 0xff, 0xff, 0xff, 0x7f, 0], usize::MAX));
    }
    assert!(!is_valid(&[13, 1, 0], usize::MAX), "a key without a value");
}

#[test]
fn dates_and_names_out_of_range_are_refused() {
    for bytes in [
        &[14, 0, 0, 1, 1][..],      // the year 0
        &[14, 0xd0, 7, 13, 1],      // month 13
        &[15, 24, 0, 0, 0, 0],      // 24 o'clock
        &[15, 1, 0, 0, 0, 9],       // an unknown kind of zone
        &[17, 0, 0x80, 0xa3, 5, 0], // 86,400 seconds
        &[21, 1, b'r', 1, 3, 2, 0], // a field whose name is a number
        &[6, 1, 0xff],              // not UTF-8
        &[22],                      // an unknown tag
        &[],
    ] {
        assert!(!is_valid(bytes, BYTES_MAX), "{bytes:?}");
    }
}

/// The bytes that docs/reference/values.md shows.
#[test]
fn typed_bytes_equal_the_example_in_the_reference() {
    let time = Time {
        hour: 13,
        minute: 5,
        second: 9,
        microsecond: 250,
        is_second_fold: false,
        zone: Zone::Fixed(7_200_000_000, None),
    };
    let date = Date { year: 2026, month: 3, day: 14 };
    let value = Typed {
        token: Token::Dict(1),
        items: vec![
            Typed::of(Token::Int(7)),
            Typed {
                token: Token::Tuple(2),
                items: vec![
                    Typed::of(Token::Decimal("1.50")),
                    Typed::of(Token::DateTime(date, time)),
                ],
            },
        ],
    };
    let bytes = [
        13, 1, 3, 14, 10, 2, 18, 4, b'1', b'.', b'5', b'0', 16, 0xea, 7, 3, 14, 13, 5, 9, 0xfa, 1,
        1, 0x80, 0xa0, 0xba, 0xd2, 0x35,
    ];
    assert_eq!(value.to_bytes(), bytes);
    assert_eq!(Typed::parse(&bytes, BYTES_MAX), Some(value));
}

proptest! {
    #[test]
    fn parse_undoes_to_bytes(value in any_value()) {
        let bytes = value.to_bytes();
        prop_assert!(is_valid(&bytes, BYTES_MAX));
        let parsed = Typed::parse(&bytes, BYTES_MAX).unwrap();
        prop_assert_eq!(parsed.to_bytes(), bytes);
    }

    #[test]
    fn a_cut_value_is_refused(value in any_value(), cut_offset in any::<prop::sample::Index>()) {
        let bytes = value.to_bytes();
        let cut_bytes = &bytes[..cut_offset.index(bytes.len())];
        prop_assert!(!is_valid(cut_bytes, BYTES_MAX));
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(0u8..30, 0..200)) {
        prop_assert_eq!(is_valid(&bytes, BYTES_MAX), Typed::parse(&bytes, BYTES_MAX).is_some());
    }
}
