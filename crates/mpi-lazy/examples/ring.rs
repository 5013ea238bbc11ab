//! Sends a number around all ranks of a job: `mpirun -n 4 ring [LIBRARY]`.
use std::time::Duration;

use megabatch_mpi_lazy::{Job, Recovery, Result, library_names};

fn main() -> Result<()> {
    let named: Vec<String> = std::env::args().skip(1).collect();
    let libraries = if named.is_empty() { library_names() } else { named };
    let mut job = Job::start(&libraries, Recovery::None, Duration::from_secs(20))?;
    let (rank, world) = (job.rank(), job.world());
    let mut sum = [0u8; 8];
    if rank > 0 {
        job.receive(rank - 1, &mut sum)?;
    }
    let mut total = (u64::from_le_bytes(sum) + rank as u64).to_le_bytes();
    if rank + 1 < world {
        job.send(rank + 1, total.to_vec())?;
    }
    job.broadcast(world - 1, &mut total)?;
    let agreed = job.agree(if rank == 0 { 0b110 } else { 0b011 })?;
    println!("rank {rank} of {world} with {}: {} {agreed}", job.library(), u64::from_le_bytes(total));
    job.finish()
}
