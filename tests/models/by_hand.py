"""Layers in numpy, from a state dict and the equations."""

import numpy as np
import torch
from scipy.special import erf
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from ipot.nn.slices import PhysicsAttention


def gelu(x: np.ndarray) -> np.ndarray:
    return x * (1 + erf(x / np.sqrt(2))) / 2


def softmax(x: np.ndarray, axis: int) -> np.ndarray:
    x = np.exp(x - x.max(axis, keepdims=True))
    return x / x.sum(axis, keepdims=True)


class ByHand:
    """Layers by the names that their weights have; a bias that is not there is zero."""

    def __init__(self, model: nn.Module) -> None:
        self.w = {k: v.numpy() for k, v in model.state_dict().items()}

    def linear(self, name: str, x: np.ndarray) -> np.ndarray:
        return x @ self.w[f"{name}.weight"].T + self.w.get(f"{name}.bias", 0.0)

    def norm(self, name: str, x: np.ndarray) -> np.ndarray:
        x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
        return x * self.w[f"{name}.weight"] + self.w[f"{name}.bias"]

    def attend(self, name: str, y: np.ndarray, x: np.ndarray | None, heads: int) -> np.ndarray:
        """(M, d) attends to (N, c), or to itself."""
        y = self.norm(f"{name}.norm", y)
        x = y if x is None else self.norm(f"{name}.norm_context", x)
        query = self.linear(f"{name}.to_query", y)
        key, value = np.split(self.linear(f"{name}.to_key_value", x), 2, axis=1)
        width = query.shape[1] // heads
        out = []
        for h in range(heads):
            part = slice(h * width, (h + 1) * width)
            scores = query[:, part] @ key[:, part].T / np.sqrt(width)
            out.append(softmax(scores, 1) @ value[:, part])
        return self.linear(f"{name}.to_out", np.concatenate(out, axis=1))

    def feed_forward(self, name: str, x: np.ndarray) -> np.ndarray:
        x = self.linear(f"{name}.into", self.norm(f"{name}.norm", x))
        return self.linear(f"{name}.out", gelu(x))

    def block(
        self, name: str, y: np.ndarray, x: np.ndarray | None, heads: int, residual: bool = True
    ) -> np.ndarray:
        out = self.attend(f"{name}.attend", y, x, heads)
        out = y + out if residual else out
        return out + self.feed_forward(f"{name}.feed_forward", out)


def physics_attention(layer: PhysicsAttention, project, x: np.ndarray) -> np.ndarray:
    """One sample (N, d); `project` gives (N, 2 d), what chooses slices before what is carried."""
    hand, heads = ByHand(layer), layer.heads
    width = x.shape[1] // heads
    both, out = project(hand, x), []
    for h in range(heads):
        place = both[:, h * width : (h + 1) * width]
        value = both[:, x.shape[1] + h * width :][:, :width]
        heat = np.clip(hand.w["temperature"][h, 0, 0], 0.1, 5.0)
        w = softmax(hand.linear("to_slice", place) / heat, 1)
        z = np.stack(
            [(w[:, [g]] * value).sum(0) / (w[:, g].sum() + 1e-5) for g in range(w.shape[1])]
        )
        query, key, new = np.split(hand.linear("to_query_key_value", z), 3, axis=1)
        out.append(w @ softmax(query @ key.T / np.sqrt(width), 1) @ new)
    return hand.linear("to_out", np.concatenate(out, 1))


def pointwise(hand: ByHand, x: np.ndarray) -> np.ndarray:
    return hand.linear("project", x)


@torch.no_grad()
def disturb(model: nn.Module) -> None:
    """Norms and biases start as trivial ones, which would hide a mistake."""
    for parameter in model.parameters():
        parameter.add_(0.3 * torch.randn_like(parameter))


class Largest(TorchDispatchMode):
    """The number of elements of the largest tensor that is made inside."""

    def __init__(self) -> None:
        super().__init__()
        self.size = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, (tuple, list)) else [out]:
            if isinstance(tensor, Tensor):
                self.size = max(self.size, tensor.numel())
        return out
