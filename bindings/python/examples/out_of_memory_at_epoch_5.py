"""Windows that grow by epoch, and attention maps that are kept for a chart: PyTorch runs out of memory although enough is free in total.

    python out_of_memory_at_epoch_5.py            dies, or lives with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
    python out_of_memory_at_epoch_5.py --pool     lives
"""

import argparse

import torch
from torch import nn

BATCH, FEATURES, HIDDEN = 256, 16, 64
FIRST, MORE, EPOCHS = 512, 64, 5
GIB = 1 << 30


class Attention(nn.Module):
    """One head over the bars of a window."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(FEATURES, HIDDEN) for _ in range(3))
        self.head = nn.Linear(HIDDEN, 1)

    def forward(self, windows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        scores = self.query(windows) @ self.key(windows).transpose(1, 2)
        weights = (scores * HIDDEN**-0.5).softmax(-1)
        return self.head((weights @ self.value(windows)).mean(1)), weights


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pool", action="store_true", help="memory from megabatch's pool")
    parser.add_argument("--gib", type=float, default=3.0, help="size of the card that this one plays")
    args = parser.parse_args()
    if args.pool:
        import megabatch as mb

        mb.torch.use_pool()
    torch.cuda.set_per_process_memory_fraction(args.gib * GIB / torch.cuda.get_device_properties(0).total_memory)
    model = Attention().cuda()
    optimizer = torch.optim.Adam(model.parameters())
    kept = []
    for epoch in range(1, EPOCHS + 1):
        bars = FIRST + MORE * epoch
        for _ in range(5):
            windows = torch.randn(BATCH, bars, FEATURES, device="cuda")
            optimizer.zero_grad()
            prediction, weights = model(windows)
            loss = (prediction - windows.mean((1, 2))[:, None]).square().mean()
            del prediction, weights
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            prediction, weights = model(windows)
            kept.append(weights[: 100 * (1 << 20) // (4 * bars * bars)].clone())
        del windows, prediction, weights
        allocated, reserved = torch.cuda.max_memory_allocated() / GIB, torch.cuda.max_memory_reserved() / GIB
        print(f"epoch {epoch}: {bars} bars, loss {loss.item():.4f}, {allocated:.2f} GiB allocated at most, {reserved:.2f} reserved")


if __name__ == "__main__":
    main()
