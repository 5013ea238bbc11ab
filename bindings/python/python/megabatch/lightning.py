"""A data module of Lightning, which is imported here alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from ._arguments import require
from ._loader_arguments import refuse_unknown, warn_of_unequal_parts
from ._requirements import required
from .dataset import Dataset
from .errors import ConfigError
from .loader import TensorOptions

with required("megabatch.lightning"):
    import torch.utils.data

    from ._torch import TensorBatches

    try:
        from lightning.pytorch import LightningDataModule
    except ImportError:
        from pytorch_lightning import LightningDataModule

__all__ = ["DataModule"]

_OPTIONS = ("batch_size", "fractions", "purge", "seed", "run_length")


class DataModule(LightningDataModule):
    """The parts of a dataset, split as training does, as batches of tensors. Batches of training are shuffled, and
    the place among them is kept in Lightning's checkpoints.

    `batch_size` counts the samples of all processes of the trainer together; each has its part of every batch."""

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int = 256,
        *,
        fractions: Sequence[float] = (0.7, 0.15, 0.15),
        purge: str = "auto",
        seed: int = 0,
        run_length: int | None = None,
        **others: NoReturn,
    ) -> None:
        super().__init__()
        refuse_unknown(others, _OPTIONS, "DataModule")
        require(isinstance(dataset, Dataset), dataset, "dataset", "a dataset: give mb.open(path)")
        self.train_part, self.validation_part, self.test_part = dataset.split(fractions, purge=purge)
        self.batch_size = batch_size
        self._order: TensorOptions = {"shuffle": True, "seed": seed, "run_length": run_length}
        self._training: Any = None
        self._ranks = (0, 0)

    def __repr__(self) -> str:
        parts = {"train": self.train_part, "validation": self.validation_part, "test": self.test_part}
        counts = ", ".join(f"{name} {len(part)}" for name, part in parts.items())
        return f"<megabatch.lightning.DataModule {self.train_part.path}: samples of {counts}; batches of {self.batch_size}>"

    # Lightning's own asks each loader for its dataset.
    __str__ = __repr__

    def _process(self) -> tuple[int, int]:
        """The number of this process among those of the trainer, and their number."""
        trainer: Any = getattr(self, "trainer", None)
        return (0, 1) if trainer is None else (trainer.global_rank, trainer.world_size)

    @property
    def train_batches(self) -> Any:
        """Batches of training, as `Dataset.torch` gives them."""
        if self._training is None or self._ranks != self._process():
            rank, world = self._process()
            if self.batch_size < world:
                raise self._too_few(self.train_part, world)
            options: TensorOptions = {**self._order, "rank": rank, "world_size": world}
            warn_of_unequal_parts(self.batch_size, world)
            batches: Any = TensorBatches(self.train_part.loader(self.batch_size, **options))
            if self._training is not None:
                batches.load_state_dict(self._training.state_dict())
            self._training, self._ranks = batches, (rank, world)
        return self._training

    def _in_order(self, part: Dataset) -> torch.utils.data.DataLoader[Any]:
        """All batches of a part, in the order of time."""
        rank, world = self._process()
        # The same samples in batches of another size, where a process would have none of the last one.
        sizes = [*range(self.batch_size, world - 1, -1), *range(self.batch_size + 1, self.batch_size + world)]
        size = next((size for size in sizes if not 0 < len(part) % size < world), None)
        if size is None or self.batch_size < world:
            raise self._too_few(part, world)
        batches: Any = TensorBatches(part.loader(size, rank=rank, world_size=world))
        return torch.utils.data.DataLoader(batches, batch_size=None, num_workers=0)

    def _too_few(self, part: Dataset, world: int) -> ConfigError:
        return ConfigError(
            f"{world} processes take their samples of each batch, and the part {part.part} has {len(part)} samples in "
            f"batches of {self.batch_size}: too few for each to have one; take larger batches or fewer processes",
            key="batch_size",
        )

    def train_dataloader(self) -> Any:
        """Batches of training, which Lightning asks for their place itself."""
        return self.train_batches

    def val_dataloader(self) -> torch.utils.data.DataLoader[Any]:
        """Batches of validation, in the order of time."""
        return self._in_order(self.validation_part)

    def test_dataloader(self) -> torch.utils.data.DataLoader[Any]:
        """Batches of the test, in the order of time."""
        return self._in_order(self.test_part)

    predict_dataloader = test_dataloader

    def state_dict(self) -> dict[str, Any]:
        """The place among the batches of training."""
        state: dict[str, Any] = self.train_batches.state_dict()
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on at that place."""
        self.train_batches.load_state_dict(state_dict)
