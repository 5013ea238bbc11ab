//! A launcher's environment variables: the number of processes, and of those on this machine.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use megabatch_mpi_lazy::{Recovery, library_names};

/// A program that starts the processes of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Launcher {
    /// `mpirun` of Open MPI.
    OpenMpi,
    /// `mpiexec` of MPICH and its relatives, and the MPI operator with them.
    Hydra,
    /// `srun`.
    Slurm,
}

/// A process that a launcher started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Launched {
    pub(super) launcher: Launcher,
    /// Number of processes.
    pub(super) world: usize,
    /// Number of them on this machine; 1 where it is not known.
    pub(super) on_this_machine: usize,
    /// Number of this process among those, counted from 0.
    pub(super) local_rank: usize,
    pub(super) recovery: Recovery,
    /// Folders in which the launcher keeps its own library.
    folders: Vec<PathBuf>,
}

/// Variables of each launcher: number of processes, and of those on the machine.
const VARIABLES: [(Launcher, &str, &str); 3] = [
    (Launcher::OpenMpi, "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    (Launcher::Hydra, "PMI_SIZE", "MPI_LOCALNRANKS"),
    (Launcher::Slurm, "SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE"),
];

/// Variables with the number of a process among those on its machine. `srun` sets its own for
/// Hydra's processes too.
const LOCAL_RANKS: [&str; 3] = ["OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"];

impl Launched {
    /// `None` for a process that no launcher started.
    pub(super) fn detect(environment: &[(OsString, OsString)]) -> Option<Self> {
        let text = |name: &str| {
            let found = environment.iter().find(|(variable, _)| variable == name);
            found.and_then(|(_, text)| text.to_str()).map(str::to_owned)
        };
        // Slurm's numbers of tasks are `4(x2),3`: of nodes with 4 each, and one with 3.
        let number = |name: &str| -> Option<usize> {
            let text = text(name)?;
            text.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
        };
        let mut started = VARIABLES
            .into_iter()
            .filter_map(|(launcher, world, local)| Some((launcher, number(world)?, number(local))));
        let (launcher, world, local) = started.next()?;
        // `srun --mpi=pmi2` sets Hydra's number of processes, and its own of those on the machine.
        let local = local.or_else(|| started.find(|&(_, other, _)| other == world).and_then(|(.., local)| local));
        let recovers = text("OMPI_MCA_mpi_ft_enable").is_some_and(|on| on == "1" || on == "true");
        let openmpi = text("OMPI_LIBDIR_LOC").map(PathBuf::from);
        let prefix = text("PMIX_PREFIX").map(|prefix| Path::new(&prefix).join("lib"));
        let on_path = text("PATH").map(|path| beside_launchers(&path)).unwrap_or_default();
        Some(Launched {
            launcher,
            world,
            on_this_machine: local.unwrap_or(1).max(1),
            local_rank: LOCAL_RANKS.into_iter().find_map(number).unwrap_or(0),
            recovery: if recovers { Recovery::Ulfm } else { Recovery::None },
            folders: openmpi.into_iter().chain(prefix).chain(on_path).collect(),
        })
    }

    /// Libraries to try, the launcher's own first.
    pub(super) fn libraries(&self) -> Vec<String> {
        let mut names = library_names();
        // A library of another MPI than the launcher's sees a world of one process.
        if self.launcher == Launcher::Hydra {
            names.rotate_left(1);
        }
        let in_folders = self.folders.iter().flat_map(|folder| names.iter().map(move |name| folder.join(name)));
        let there = in_folders.filter(|path| path.is_file()).map(|path| path.display().to_string());
        let (mut libraries, all): (Vec<String>, Vec<String>) = (there.collect(), names.clone());
        libraries.extend(all);
        libraries
    }

    /// The option by which the launcher lets a process have all cores of its machine.
    pub(super) fn unbind(&self) -> &'static str {
        match self.launcher {
            Launcher::OpenMpi => "mpirun --bind-to none",
            Launcher::Hydra => "mpiexec -bind-to none",
            Launcher::Slurm => "srun --cpus-per-task=N",
        }
    }
}

/// Folders of libraries beside those that hold a launcher, as in a virtual environment.
fn beside_launchers(path: &str) -> Vec<PathBuf> {
    let has_launcher = |folder: &Path| ["mpirun", "mpiexec"].iter().any(|name| folder.join(name).is_file());
    let folders = std::env::split_paths(path).filter(|folder| has_launcher(folder));
    folders.filter_map(|folder| Some(folder.parent()?.join("lib"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detect(variables: &[(&str, &str)]) -> Option<Launched> {
        Launched::detect(&variables.iter().map(|(name, text)| (name.into(), text.into())).collect::<Vec<_>>())
    }

    #[test]
    fn launchers_are_known_by_their_variables() {
        assert_eq!(detect(&[("PATH", "/usr/bin"), ("SLURM_NTASKS", "4")]), None, "a batch script is no task of a step");
        for (variables, launcher, world, local, recovery) in [
            (
                &[("OMPI_COMM_WORLD_SIZE", "4"), ("OMPI_COMM_WORLD_LOCAL_SIZE", "2")][..],
                Launcher::OpenMpi,
                4,
                2,
                Recovery::None,
            ),
            (
                &[("OMPI_COMM_WORLD_SIZE", "1"), ("OMPI_MCA_mpi_ft_enable", "1")],
                Launcher::OpenMpi,
                1,
                1,
                Recovery::Ulfm,
            ),
            (&[("PMI_SIZE", "3"), ("MPI_LOCALNRANKS", "3")], Launcher::Hydra, 3, 3, Recovery::None),
            (
                &[("PMI_SIZE", "8"), ("SLURM_STEP_NUM_TASKS", "8"), ("SLURM_STEP_TASKS_PER_NODE", "4(x2)")],
                Launcher::Hydra,
                8,
                4,
                Recovery::None,
            ),
            // Hydra, whose proxies `srun` has started on two nodes.
            (
                &[("PMI_SIZE", "8"), ("SLURM_STEP_NUM_TASKS", "2"), ("SLURM_STEP_TASKS_PER_NODE", "1(x2)")],
                Launcher::Hydra,
                8,
                1,
                Recovery::None,
            ),
            (
                &[("SLURM_STEP_NUM_TASKS", "64"), ("SLURM_STEP_TASKS_PER_NODE", "16(x4)")],
                Launcher::Slurm,
                64,
                16,
                Recovery::None,
            ),
        ] {
            let found = detect(variables).unwrap();
            assert_eq!((found.launcher, found.world, found.on_this_machine), (launcher, world, local));
            assert_eq!(found.recovery, recovery, "{variables:?}");
        }
    }

    #[test]
    fn processes_know_their_number_on_their_machine() {
        for (variables, local_rank) in [
            (&[("OMPI_COMM_WORLD_SIZE", "4"), ("OMPI_COMM_WORLD_LOCAL_RANK", "1")][..], 1),
            (&[("PMI_SIZE", "4"), ("MPI_LOCALRANKID", "3")], 3),
            (&[("PMI_SIZE", "4"), ("SLURM_LOCALID", "2")], 2),
            (&[("SLURM_STEP_NUM_TASKS", "4"), ("SLURM_LOCALID", "2")], 2),
            (&[("PMI_SIZE", "4")], 0),
        ] {
            assert_eq!(detect(variables).unwrap().local_rank, local_rank, "{variables:?}");
        }
    }

    #[test]
    fn the_library_of_the_launcher_comes_first() {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [("bin/mpirun", ""), ("lib/libmpi.so.40", ""), ("lib/libmpi.so.12", "")] {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let bin = folder.path().join("bin");
        let path = format!("/nowhere:{}", bin.display());
        let lib = |name: &str| folder.path().join("lib").join(name).display().to_string();
        let openmpi = detect(&[("OMPI_COMM_WORLD_SIZE", "2"), ("PATH", &path)]).unwrap().libraries();
        assert_eq!(openmpi[..3], [lib("libmpi.so.40"), lib("libmpi.so.12"), "libmpi.so.40".to_owned()]);
        let mpich = detect(&[("PMI_SIZE", "2"), ("PATH", &path)]).unwrap().libraries();
        assert_eq!(mpich[..3], [lib("libmpi.so.12"), lib("libmpi.so.40"), "libmpi_abi.so.1".to_owned()]);
    }
}
