"""Trains with a CUDA graph: captured once, replayed for every batch that brimful brings to the GPU.

graph.py SHARDS: a graph reads and writes fixed addresses, so each batch is copied into a static tensor before the
replay; on the GPU that takes microseconds. Nothing of brimful may be asked for inside the capture.
"""

import sys

import torch

import brimful
from brimful import transforms as T

BATCH, SIZE, CLASSES, STEPS = 64, 64, 10, 20


def main() -> None:
    if not torch.cuda.is_available():
        print("a CUDA graph needs a GPU: nothing done")
        return
    steps = [T.RandomResizedCrop(SIZE), T.RandomHorizontalFlip(), T.ToTensor(), T.Normalize([0.5] * 3, [0.25] * 3)]
    dataset = brimful.ShardDataset(sys.argv[1], fields=("jpg", "cls"), transform=T.Compose(steps))
    loader = brimful.DataLoader(dataset, batch_size=BATCH, shuffle=True, drop_last=True, device="cuda")

    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 5, stride=4), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.LazyLinear(CLASSES)
    ).cuda()
    images = torch.zeros(BATCH, 3, SIZE, SIZE, device="cuda")
    labels = torch.zeros(BATCH, dtype=torch.int64, device="cuda")
    model(images)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)

    def step() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=False)
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        return loss

    warm = torch.cuda.Stream()
    warm.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(warm):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(warm)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()

    done = 0
    while done < STEPS:
        for batch, targets in loader:
            images.copy_(batch, non_blocking=True)
            labels.copy_(targets % CLASSES, non_blocking=True)
            graph.replay()
            done += 1
            if done == STEPS:
                break
    print(f"{done} steps, loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
