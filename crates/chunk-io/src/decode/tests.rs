//! Whole pipelines against plain loops.

use half::f16;
use proptest::prelude::*;

use super::Corrupt;
use super::*;

const WIDTHS: [FloatWidth; 3] = [FloatWidth::F16, FloatWidth::F32, FloatWidth::F64];
const ORDERS: [ByteOrder; 2] = [ByteOrder::Little, ByteOrder::Big];

fn floats() -> impl Iterator<Item = FloatType> {
    WIDTHS.into_iter().flat_map(|width| ORDERS.map(|order| FloatType { width, order }))
}

/// One element at a time.
fn plain_f32s(float: FloatType, bytes: &[u8]) -> Vec<f32> {
    let value = |element: &[u8]| {
        let mut little = element.to_vec();
        if float.order == ByteOrder::Big {
            little.reverse();
        }
        match float.width {
            FloatWidth::F16 => f16::from_le_bytes(little.try_into().unwrap()).to_f32(),
            FloatWidth::F32 => f32::from_le_bytes(little.try_into().unwrap()),
            FloatWidth::F64 => f64::from_le_bytes(little.try_into().unwrap()) as f32,
        }
    };
    bytes.chunks_exact(float.bytes()).map(value).collect()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// The bytes of a chunk: some of them look random, some repeat.
fn chunk(elements: usize, float: FloatType) -> Vec<u8> {
    (0..(elements * float.bytes()) as u32).map(|k| (k.wrapping_mul(2_654_435_761) >> 13 & 0x1f) as u8 ^ 0x3f).collect()
}

/// The filters applied that `mask` does not leave out.
fn stored(filters: &[ChunkFilter], mask: u32, chunk: &[u8]) -> Vec<u8> {
    let active = filters.iter().enumerate().filter(|(place, _)| mask >> place & 1 == 0);
    active.fold(chunk.to_vec(), |bytes, (_, &filter)| encode::apply(filter, &bytes))
}

/// Decodes what `stored` gives, and compares all elements and some in the middle.
fn check(filters: &[ChunkFilter], mask: u32, float: FloatType, elements: usize) {
    let chunk = chunk(elements, float);
    let stored = stored(filters, mask, &chunk);
    let pipeline = Pipeline::new(filters.to_vec(), float, elements).unwrap();
    let mut decoder = ChunkDecoder::new();
    let decoded = decoder.decode(&pipeline, mask, &stored).unwrap();
    let expected = plain_f32s(float, &chunk);
    for range in [0..elements, elements / 3..elements - elements / 5, elements..elements] {
        let mut out = vec![f32::NAN; range.len()];
        decoded.copy(range.clone(), &mut out);
        assert_eq!(bits(&out), bits(&expected[range.clone()]), "{filters:?} without {mask:#b}, {float:?}, {range:?}");
    }
}

#[test]
fn usual_pipelines_are_undone_for_every_float() {
    for float in floats() {
        let shuffle = ChunkFilter::Shuffle { element_bytes: float.bytes() };
        let pipelines: [&[ChunkFilter]; 9] = [
            &[],
            &[shuffle],
            &[ChunkFilter::Deflate],
            &[ChunkFilter::Lzf],
            &[shuffle, ChunkFilter::Deflate],
            &[shuffle, ChunkFilter::Lzf],
            &[ChunkFilter::Fletcher32],
            &[shuffle, ChunkFilter::Deflate, ChunkFilter::Fletcher32],
            &[ChunkFilter::Fletcher32, shuffle, ChunkFilter::Lzf],
        ];
        for filters in pipelines {
            for elements in [0, 1, 2, 63, 64, 65, 511, 512, 513, 1500] {
                check(filters, 0, float, elements);
            }
        }
    }
}

#[test]
fn bytes_left_over_by_a_shuffle_stay_in_their_place() {
    let float = FloatType { width: FloatWidth::F32, order: ByteOrder::Little };
    for element_bytes in [1, 2, 3, 4, 5, 7, 8, 1000] {
        for filters in [
            vec![ChunkFilter::Shuffle { element_bytes }],
            vec![ChunkFilter::Deflate, ChunkFilter::Shuffle { element_bytes }],
            vec![
                ChunkFilter::Shuffle { element_bytes: 4 },
                ChunkFilter::Fletcher32,
                ChunkFilter::Shuffle { element_bytes },
                ChunkFilter::Lzf,
            ],
        ] {
            check(&filters, 0, float, 101);
        }
    }
}

#[test]
fn a_mask_leaves_filters_out() {
    let float = FloatType { width: FloatWidth::F64, order: ByteOrder::Big };
    let filters = [
        ChunkFilter::Shuffle { element_bytes: 8 },
        ChunkFilter::Fletcher32,
        ChunkFilter::Deflate,
        ChunkFilter::Fletcher32,
    ];
    for mask in 0..1 << filters.len() {
        check(&filters, mask, float, 300);
    }
}

#[test]
fn what_only_the_library_can_decode_is_not_taken_on() {
    let float = FloatType { width: FloatWidth::F32, order: ByteOrder::Little };
    let new = |filters: &[ChunkFilter], elements| Pipeline::new(filters.to_vec(), float, elements).is_some();
    assert!(new(&[ChunkFilter::Fletcher32; 32], 10));
    assert!(!new(&[ChunkFilter::Fletcher32; 33], 10));
    assert!(!new(&[ChunkFilter::Deflate, ChunkFilter::Lzf], 10));
    assert!(!new(&[ChunkFilter::Shuffle { element_bytes: 0 }], 10));
    assert!(new(&[], u32::MAX as usize / 4));
    assert!(!new(&[], u32::MAX as usize / 4 + 1));
    assert!(!new(&[], usize::MAX / 2));
}

#[test]
fn values_that_are_not_ordinary_keep_what_ieee_says() {
    let f32s = [0x7f80_0001u32, 0xffff_ffff, 0x7fc0_1234, 0x8000_0000, 1, 0xff80_0000];
    let bytes: Vec<u8> = f32s.iter().flat_map(|bits| bits.to_be_bytes()).collect();
    let mut out = [0.0; 6];
    to_f32(FloatType { width: FloatWidth::F32, order: ByteOrder::Big }, &bytes, &mut out);
    assert_eq!(bits(&out), f32s);
    let f64s = [1.0 + 2f64.powi(-24), 1.0 + 3.0 * 2f64.powi(-24), 1e300, -1e-300, f64::MIN_POSITIVE];
    let bytes: Vec<u8> = f64s.iter().flat_map(|value| value.to_le_bytes()).collect();
    let mut out = [0.0; 5];
    to_f32(FloatType { width: FloatWidth::F64, order: ByteOrder::Little }, &bytes, &mut out);
    assert_eq!(bits(&out), bits(&[1.0, 1.0 + 2f32.powi(-22), f32::INFINITY, -0.0, 0.0]));
    let bytes: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    let float = FloatType { width: FloatWidth::F16, order: ByteOrder::Little };
    let mut out = vec![0.0; 1 << 16];
    to_f32(float, &bytes, &mut out);
    assert_eq!(bits(&out), bits(&plain_f32s(float, &bytes)));
}

fn decode(filters: &[ChunkFilter], stored: &[u8]) -> Result<(), Corrupt> {
    let float = FloatType { width: FloatWidth::F32, order: ByteOrder::Little };
    ChunkDecoder::new().decode(&Pipeline::new(filters.to_vec(), float, 100).unwrap(), 0, stored).map(drop)
}

#[test]
fn what_is_wrong_with_a_chunk_is_named() {
    let right = encode::deflate(&[7; 400]);
    assert_eq!(decode(&[ChunkFilter::Deflate], &right), Ok(()));
    assert_eq!(decode(&[ChunkFilter::Deflate], &[&right[..], b"behind"].concat()), Ok(()));
    let stored_bytes = right.len();
    let broken = Err(Corrupt::Deflate { stored_bytes });
    for (at, what) in [(0, "header"), (3, "stream"), (stored_bytes - 1, "Adler-32")] {
        let mut wrong = right.clone();
        wrong[at] ^= 0x55;
        assert_eq!(decode(&[ChunkFilter::Deflate], &wrong), broken, "{what}");
    }
    for cut in 1..stored_bytes {
        let found = decode(&[ChunkFilter::Deflate], &right[..cut]);
        assert_eq!(found, Err(Corrupt::Deflate { stored_bytes: cut }), "cut to {cut}");
    }
    let cases = [
        (
            &[ChunkFilter::Deflate][..],
            encode::deflate(&[7; 399]),
            Corrupt::TooShort { filter: "deflate", found: 399, expected: 400 },
        ),
        (&[ChunkFilter::Deflate], encode::deflate(&[7; 401]), Corrupt::TooLong { filter: "deflate", expected: 400 }),
        (
            &[ChunkFilter::Deflate],
            vec![],
            Corrupt::Implausible { filter: "deflate", stored_bytes: 0, found: 0, expected: 400 },
        ),
        (
            &[ChunkFilter::Lzf],
            vec![0; 4],
            Corrupt::Implausible { filter: "LZF", stored_bytes: 4, found: 352, expected: 400 },
        ),
        (&[], vec![0; 399], Corrupt::Length { expected: 400, found: 399 }),
        (&[ChunkFilter::Shuffle { element_bytes: 4 }], vec![0; 401], Corrupt::Length { expected: 400, found: 401 }),
        (&[ChunkFilter::Fletcher32], vec![0; 400], Corrupt::Length { expected: 400, found: 396 }),
        (&[ChunkFilter::Fletcher32], vec![0; 3], Corrupt::ChecksumAbsent { found: 3 }),
        (&[ChunkFilter::Fletcher32], vec![1; 404], Corrupt::Checksum { expected: 0x0101_0101, found: 0xd2d2_c8c8 }),
    ];
    for (filters, stored, expected) in cases {
        assert_eq!(decode(filters, &stored), Err(expected), "{filters:?}");
    }
}

#[test]
fn a_decoder_keeps_no_more_than_its_largest_chunk() {
    let float = FloatType { width: FloatWidth::F32, order: ByteOrder::Little };
    let mut decoder = ChunkDecoder::new();
    for elements in [1000, 10, 500] {
        let pipeline = Pipeline::new(vec![ChunkFilter::Lzf], float, elements).unwrap();
        decoder.decode(&pipeline, 0, &encode::lzf(&chunk(elements, float))).unwrap();
        assert!((4000..9000).contains(&decoder.scratch_bytes()));
    }
}

fn filters() -> impl Strategy<Value = Vec<ChunkFilter>> {
    let filter = prop_oneof![
        Just(ChunkFilter::Deflate),
        Just(ChunkFilter::Lzf),
        Just(ChunkFilter::Fletcher32),
        (1usize..9).prop_map(|element_bytes| ChunkFilter::Shuffle { element_bytes }),
    ];
    let compressors = |filters: &[ChunkFilter]| {
        filters.iter().filter(|filter| matches!(filter, ChunkFilter::Deflate | ChunkFilter::Lzf)).count()
    };
    prop::collection::vec(filter, 0..5).prop_filter("one compressor", move |filters| compressors(filters) <= 1)
}

fn float() -> impl Strategy<Value = FloatType> {
    (prop::sample::select(&WIDTHS[..]), prop::sample::select(&ORDERS[..]))
        .prop_map(|(width, order)| FloatType { width, order })
}

proptest! {
    #[test]
    fn any_pipeline_is_undone(filters in filters(), mask in 0u32..32, float in float(), elements in 0usize..1200) {
        check(&filters, mask, float, elements);
    }

    #[test]
    fn any_damage_ends_in_an_answer(
        filters in filters(),
        float in float(),
        elements in 0usize..600,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut: prop::sample::Index,
    ) {
        let mut stored = stored(&filters, 0, &chunk(elements, float));
        if stored.is_empty() {
            return Ok(());
        }
        damage.iter().for_each(|(at, byte)| { let at = at.index(stored.len()); stored[at] ^= byte });
        let pipeline = Pipeline::new(filters, float, elements).unwrap();
        let mut decoder = ChunkDecoder::new();
        for stored in [&stored[..], &stored[..cut.index(stored.len())]] {
            if let Ok(decoded) = decoder.decode(&pipeline, 0, stored) {
                decoded.copy(0..elements, &mut vec![0.0; elements]);
            }
        }
        prop_assert!(decoder.scratch_bytes() <= 2 * (elements * float.bytes() + 5000));
    }
}
