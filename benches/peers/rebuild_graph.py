"""A graph as it is rebuilt in every batch in the wild: correlations by numpy, and a loop over nodes that sorts and appends.

`megabatch graph bench --rebuild-with "python benches/peers/rebuild_graph.py"` asks it for one graph after the other: u32 N, W and k and f32 returns
[N, W] come in, u32 neighbours [N, k] go out.
"""
import struct
import sys

import numpy


def rebuild(returns, k):
    correlations = numpy.corrcoef(returns)
    sources, receivers = [], []
    for node in range(len(returns)):
        order = numpy.argsort(-correlations[node])
        for neighbour in order[order != node][:k]:
            sources.append(neighbour)
            receivers.append(node)
    return numpy.array([sources, receivers])


def main():
    while header := sys.stdin.buffer.read(12):
        nodes, window, k = struct.unpack("<3I", header)
        returns = numpy.frombuffer(sys.stdin.buffer.read(4 * nodes * window), "<f4").reshape(nodes, window)
        sys.stdout.buffer.write(rebuild(returns, k)[0].astype("<u4").tobytes())
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
