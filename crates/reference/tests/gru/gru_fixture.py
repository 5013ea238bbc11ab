"""Writes gru_float64.safetensors: torch.nn.GRU and a linear head as NumPy computes them, with gradients by hand.

The equations are those of PyTorch's documentation; rows of the weights are r, z, n:

    r = σ(W_ir x + b_ir + W_hr h + b_hr)
    z = σ(W_iz x + b_iz + W_hz h + b_hz)
    n = tanh(W_in x + b_in + r ⊙ (W_hn h + b_hn))
    h' = (1 - z) ⊙ n + z ⊙ h
"""

import json
import pathlib

import numpy as np

SAMPLES, STEPS, FEATURES, HIDDEN, LAYERS, OUTPUTS = 3, 7, 4, 5, 2, 2


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def step_backward(kept, d_after):
    """From the gradient of h' to those of both products, and the part of dh past them."""
    r, z, n, recurrent_n, before = kept
    d_n = d_after * (1 - z) * (1 - n**2)
    d_r = d_n * recurrent_n * r * (1 - r)
    d_z = d_after * (before - n) * z * (1 - z)
    return np.hstack([d_r, d_z, d_n]), np.hstack([d_r, d_z, d_n * r]), d_after * z


def main():
    random = np.random.default_rng(7)
    draw = lambda *shape: random.uniform(-1, 1, shape)
    params = {}
    for layer in range(LAYERS):
        params[f"gru.weight_ih_l{layer}"] = draw(3 * HIDDEN, FEATURES if layer == 0 else HIDDEN)
        params[f"gru.weight_hh_l{layer}"] = draw(3 * HIDDEN, HIDDEN)
        params[f"gru.bias_ih_l{layer}"], params[f"gru.bias_hh_l{layer}"] = draw(3 * HIDDEN), draw(3 * HIDDEN)
    params["head.weight"], params["head.bias"] = draw(OUTPUTS, HIDDEN), draw(OUTPUTS)
    x, h0, target = draw(SAMPLES, STEPS, FEATURES), draw(LAYERS, SAMPLES, HIDDEN), draw(SAMPLES, OUTPUTS)

    inputs, states, kept = [x.transpose(1, 0, 2)], [], []
    for layer in range(LAYERS):
        w_ih, w_hh, b_ih, b_hh = (params[f"gru.{part}_l{layer}"] for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
        h, outputs, steps = h0[layer], [], []
        for x_t in inputs[-1]:
            (i_r, i_z, i_n), (h_r, h_z, h_n) = (np.split(p, 3, axis=1) for p in (x_t @ w_ih.T + b_ih, h @ w_hh.T + b_hh))
            r, z = sigmoid(i_r + h_r), sigmoid(i_z + h_z)
            n = np.tanh(i_n + r * h_n)
            steps.append((r, z, n, h_n, h))
            h = (1 - z) * n + z * h
            outputs.append(h)
        inputs.append(np.stack(outputs))
        states.append(h)
        kept.append(steps)
    y = states[-1] @ params["head.weight"].T + params["head.bias"]

    d_y = 2 * (y - target) / y.size
    grads = {name: np.zeros_like(value) for name, value in params.items()}
    grads["head.weight"], grads["head.bias"] = d_y.T @ states[-1], d_y.sum(axis=0)
    d_outputs, d_h0 = np.zeros((STEPS, SAMPLES, HIDDEN)), np.zeros_like(h0)
    d_outputs[-1] = d_y @ params["head.weight"]
    for layer in reversed(range(LAYERS)):
        d_inputs, d_h = np.zeros_like(inputs[layer]), np.zeros((SAMPLES, HIDDEN))
        for t in reversed(range(STEPS)):
            d_input, d_recurrent, d_past = step_backward(kept[layer][t], d_outputs[t] + d_h)
            grads[f"gru.weight_ih_l{layer}"] += d_input.T @ inputs[layer][t]
            grads[f"gru.weight_hh_l{layer}"] += d_recurrent.T @ kept[layer][t][4]
            grads[f"gru.bias_ih_l{layer}"] += d_input.sum(axis=0)
            grads[f"gru.bias_hh_l{layer}"] += d_recurrent.sum(axis=0)
            d_inputs[t] = d_input @ params[f"gru.weight_ih_l{layer}"]
            d_h = d_past + d_recurrent @ params[f"gru.weight_hh_l{layer}"]
        d_outputs, d_h0[layer] = d_inputs, d_h

    tensors = {f"param.{name}": value for name, value in params.items()}
    tensors |= {f"grad.{name}": value for name, value in grads.items()}
    tensors |= {"input.x": x, "input.h0": h0, "input.target": target, "out.y": y, "out.hn": np.stack(states)}
    tensors |= {"out.loss": np.array([np.mean((y - target) ** 2)]), "grad.input.h0": d_h0, "grad.input.x": d_outputs.transpose(1, 0, 2)}
    write(pathlib.Path(__file__).with_name("gru_float64.safetensors"), tensors)


def write(path, tensors):
    """The format of safetensors: the length of the header, the header, and the numbers."""
    header, data = {"__metadata__": {"numpy": np.__version__}}, b""
    for name, value in sorted(tensors.items()):
        raw = np.ascontiguousarray(value, dtype="<f8").tobytes()
        header[name] = {"dtype": "F64", "shape": list(value.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


if __name__ == "__main__":
    main()
