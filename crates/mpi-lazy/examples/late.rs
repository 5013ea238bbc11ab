//! A rank that works for three timeouts before its message, as in a long step: `mpirun -n 3 late
//! [LIBRARY]`. The others wait for it.
use std::time::Duration;

use megabatch_mpi_lazy::{Job, Recovery, Result, library_names};

const TIMEOUT: Duration = Duration::from_secs(2);

fn main() -> Result<()> {
    let named: Vec<String> = std::env::args().skip(1).collect();
    let libraries = if named.is_empty() { library_names() } else { named };
    let mut job = Job::start(&libraries, Recovery::None, TIMEOUT)?;
    let (rank, world) = (job.rank(), job.world());
    let mut message = *b"late";
    if rank == 0 {
        std::thread::sleep(3 * TIMEOUT);
        (1..world).try_for_each(|other| job.send(other, message.to_vec()))?;
    } else {
        job.receive(0, &mut message)?;
    }
    if rank == 1 {
        std::thread::sleep(2 * TIMEOUT);
    }
    let agreed = job.agree(1)?;
    println!("rank {rank} of {world} with {}: {} {agreed}", job.library(), String::from_utf8_lossy(&message));
    if rank + 1 == world {
        std::thread::sleep(2 * TIMEOUT);
    }
    job.finish()
}
