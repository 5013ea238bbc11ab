use std::time::Instant;
fn main() {
    let path = std::env::args().nth(1).unwrap();
    for _ in 0..3 {
        let t = Instant::now();
        let r = megabatch_bars::read(&[&path], &Default::default()).unwrap();
        println!("{} bars in {:?}", r.bars.len(), t.elapsed());
    }
}
