use super::*;

const G: usize = 4096;
const CAPACITY: usize = 8 * G;
const A: StreamId = StreamId(0);
const B: StreamId = StreamId(1);

/// A device, a reservation of it and granules of which the first two are mapped at its start.
fn device(completion: Completion) -> (SimulatedDevice, u64, Vec<Granule>) {
    let mut device = SimulatedDevice::new(CAPACITY, G, completion);
    let address = device.reserve(CAPACITY).unwrap();
    let granules: Vec<Granule> = (0..3).map(|_| device.create().unwrap()).collect();
    device.map(address, &granules[..2]).unwrap();
    (device, address, granules)
}

/// Misuse of the device, the address of the reservation and the granules of [`device`].
type Misuse = fn(&mut SimulatedDevice, u64, &[Granule]);

#[test]
fn every_misuse_is_a_panic() {
    let misuses: &[(&str, Misuse)] = &[
        ("mapping over a mapping", |d, a, g| d.map(a + G as u64, &g[2..]).unwrap()),
        ("mapping beyond the reservation", |d, a, g| d.map(a + CAPACITY as u64, &g[2..]).unwrap()),
        ("mapping below the reservation", |d, a, g| d.map(a - G as u64, &g[2..]).unwrap()),
        ("mapping across the end", |d, a, g| d.map(a + (CAPACITY - G) as u64, &g[1..]).unwrap()),
        ("mapping between granules", |d, a, g| d.map(a + 2 * G as u64 + 8, &g[2..]).unwrap()),
        ("mapping nothing", |d, a, _| d.map(a + 2 * G as u64, &[]).unwrap()),
        ("mapping what does not exist", |d, a, _| d.map(a + 2 * G as u64, &[Granule(99)]).unwrap()),
        ("unmapping what is not mapped", |d, a, _| d.unmap(a + G as u64, 2 * G)),
        ("destroying a mapped granule", |d, _, g| d.destroy(g[0])),
        ("destroying twice", |d, _, g| (0..2).for_each(|_| d.destroy(g[2]))),
        ("releasing with a mapping", |d, a, _| d.release(a, CAPACITY)),
        ("releasing a part", |d, a, _| d.release(a, G)),
        ("writing beyond the mapping", |d, a, _| d.write(a + 2 * G as u64 - 1, &[0; 2])),
        ("working on what is not mapped", |d, a, _| d.submit(A, a + 2 * G as u64, 1)),
    ];
    for (name, misuse) in misuses {
        let (mut device, address, granules) = device(Completion::Immediate);
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| misuse(&mut device, address, &granules)));
        assert!(done.is_err(), "{name} went unseen");
    }
}

#[test]
fn the_nth_call_is_refused_once_and_does_nothing() {
    let (mut device, address, granules) = device(Completion::Immediate);
    let refusal = Refusal::Failed { call: "cuMemMap", reason: "a test".to_owned() };
    device.fail_call(2, refusal.clone());
    let granule = device.create().unwrap();
    let exist = device.granules();
    assert_eq!(device.map(address + 2 * G as u64, &granules[2..]), Err(refusal));
    device.map(address + 2 * G as u64, &granules[2..]).unwrap();
    assert!(!device.stop_faults() && device.refusals_total() == 1);

    device.fail_call(1, Refusal::OutOfMemory);
    device.destroy(granule);
    assert_eq!((device.create(), device.granules()), (Err(Refusal::OutOfMemory), exist - 1));
    device.fail_call(9, Refusal::OutOfMemory);
    assert!(device.stop_faults() && device.reserve(G).is_ok());
}

#[test]
fn others_take_from_what_is_free() {
    let (mut device, ..) = device(Completion::Immediate);
    assert_eq!(device.free_bytes(), Some(5 * G));
    device.set_held_by_others_bytes(4 * G + 1);
    assert_eq!((device.free_bytes(), device.create()), (Some(G - 1), Err(Refusal::OutOfMemory)));
    device.set_held_by_others_bytes(7 * G);
    assert_eq!(device.free_bytes(), Some(0));
    device.set_held_by_others_bytes(0);
    device.create().unwrap();
}

#[test]
fn memory_handed_on_without_order_is_seen_through_any_address() {
    let on_b = |prepare: fn(&mut SimulatedDevice)| {
        let (mut device, address, granules) = device(Completion::Manual);
        let view = device.reserve(2 * G).unwrap();
        device.map(view, &[granules[1], granules[0]]).unwrap();
        device.submit(A, address + 100, 8);
        device.submit(B, address + 108, 8);
        device.submit(B, view, G);
        prepare(&mut device);
        let through_the_view = view + G as u64 + 107;
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| device.submit(B, through_the_view, 1)))
    };
    assert!(on_b(|_| ()).is_err());
    assert!(on_b(|device| device.order(A, B).unwrap()).is_err());
    assert!(on_b(|device| device.complete(B)).is_err());
    assert!(on_b(|device| device.order(B, A).unwrap()).is_ok());
    assert!(on_b(|device| device.complete(A)).is_ok());
    assert!(on_b(|device| device.synchronize().unwrap()).is_ok());
}

#[test]
fn nobody_reads_what_another_wrote() {
    let (mut device, address, granules) = device(Completion::Immediate);
    let mut byte = [0];
    device.read(address, &mut byte);
    assert_eq!(byte, [POISON]);
    device.write(address, &[1]);
    device.unmap(address, 2 * G);
    device.destroy(granules[0]);
    let again = device.create().unwrap();
    device.map(address, &[again]).unwrap();
    device.read(address, &mut byte);
    assert_eq!(byte, [POISON]);
}
