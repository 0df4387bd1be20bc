"""A GRED layer, forward and backward: ours beside an independent Flax layer, jitted, in one run.

``python bench/gred.py`` needs the extra ``bench``. Parameters are equal on both sides, and before
anything is timed both must give the same output and the same gradients. The other two rows set the
hop recurrence and the distances against what one would write first.
"""

from __future__ import annotations

import os
from functools import partial

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")

import click
import flax.linen as fnn
import harness
import jax
import jax.numpy as jnp
import numpy as np
import torch
from scipy.sparse import csr_array
from scipy.sparse.csgraph import shortest_path

from icml24.papers import gred


class FlaxLayer(fnn.Module):
    """The same layer in Flax; `form` says how the hops are read."""

    dim_h: int
    dim_v: int
    form: str

    @fnn.compact
    def __call__(self, x: jax.Array, masks: jax.Array) -> jax.Array:
        normal = fnn.initializers.normal(1.0)
        sums = jnp.einsum("bkvu,buh->kbvh", masks, x)
        inner = fnn.gelu(fnn.Dense(self.dim_h, name="inner")(fnn.LayerNorm(name="norm")(sums)))
        hops = sums + fnn.Dense(self.dim_h, name="outer")(inner)
        nu, theta, gamma = (
            jnp.exp(self.param(name, normal, (self.dim_v,))) for name in ("nu_log", "theta_log", "gamma_log")
        )
        w_in = [self.param(n, normal, (self.dim_h, self.dim_v)) * gamma for n in ("B_re", "B_im")]
        c_re, c_im = (self.param(n, normal, (self.dim_v, self.dim_h)) for n in ("C_re", "C_im"))
        z = fnn.LayerNorm(name="lru_norm")(hops)
        inputs = jax.lax.complex(z @ w_in[0], z @ w_in[1])
        lam = jnp.exp(jax.lax.complex(-nu, theta))
        state = read_hops(self.form, lam, inputs)
        y = fnn.gelu(state.real @ c_re - state.imag @ c_im)
        value, gate = (fnn.Dense(self.dim_h, name=n)(y) for n in ("value", "gate"))
        return hops[0] + value * fnn.sigmoid(gate)


def read_hops(form: str, lam: jax.Array, inputs: jax.Array) -> jax.Array:
    """Last state of the recurrence, by an unrolled loop, a `lax.scan` or an associative scan."""
    if form == "scan":
        return jax.lax.scan(lambda c, u: (lam * c + u, None), inputs[-1], inputs[:-1], reverse=True)[0]
    if form == "associative":
        factors = jnp.broadcast_to(lam, inputs.shape)
        pair = jax.lax.associative_scan(
            lambda p, q: (p[0] * q[0], q[0] * p[1] + q[1]), (factors, inputs), reverse=True
        )
        return pair[1][0]
    state = inputs[-1]
    for k in range(inputs.shape[0] - 2, -1, -1):
        state = lam * state + inputs[k]
    return state


def graphs(batch: int, nodes: int, seed: int) -> torch.Tensor:
    """Random trees: about as sparse as molecules."""
    g = torch.Generator().manual_seed(seed)
    adj = torch.zeros(batch, nodes, nodes, dtype=torch.bool)
    for b in range(batch):
        for v in range(1, nodes):
            parent = max(0, v - 1 - int(torch.randint(4, (1,), generator=g)))
            adj[b, v, parent] = adj[b, parent, v] = True
    return adj


def mean_square(module: FlaxLayer, params: object, x: jax.Array, masks: jax.Array) -> jax.Array:
    """Loss of the benchmark."""
    return jnp.square(module.apply(params, x, masks)).mean()


def flax_params(layer: gred.GREDLayer) -> dict[str, object]:
    """Parameters of our layer under the names of `FlaxLayer`."""
    unit = layer.lru
    dense = {"inner": layer.inner, "outer": layer.outer, "value": unit.value, "gate": unit.gate}
    norms = {"norm": layer.norm, "lru_norm": unit.norm}
    own = {n: getattr(unit, n) for n in ("nu_log", "theta_log", "gamma_log", "B_re", "B_im", "C_re", "C_im")}
    tree: dict[str, object] = {n: {"kernel": d.weight.T, "bias": d.bias} for n, d in dense.items()}
    tree |= {n: {"scale": d.weight, "bias": d.bias} for n, d in norms.items()} | own
    return jax.tree.map(lambda t: jnp.asarray(t.detach().numpy().copy()), tree)


def layer_row(batch: int, nodes: int, hops: int, width: int, repeats: int, number: int) -> dict[str, object]:
    """One row: forward and backward of a layer, gradients of every parameter and of the input."""
    layer = gred.GREDLayer(width, width, r_min=0.5, generator=torch.Generator().manual_seed(0))
    masks = gred.hop_masks(gred.shortest_path_distances(graphs(batch, nodes, 1)), hops).float()
    x = torch.randn(batch, nodes, width, generator=torch.Generator().manual_seed(2), requires_grad=True)
    tree = {"params": flax_params(layer)}
    jx, jmasks = jnp.asarray(x.detach().numpy()), jnp.asarray(masks.numpy())

    def ours() -> torch.Tensor:
        layer.zero_grad(set_to_none=True)
        x.grad = None
        loss = layer(x, masks).square().mean()
        loss.backward()
        return loss

    steps = {}
    for form in ("loop", "scan", "associative"):
        module = FlaxLayer(width, width, form)
        steps[form] = jax.jit(jax.value_and_grad(partial(mean_square, module), argnums=(0, 1)))
        jax.block_until_ready(steps[form](tree, jx, jmasks))  # compiled here, outside the clock
    # the peer is whichever form is the quickest at this size
    spent = {
        form: min(harness.seconds(lambda f=f: jax.block_until_ready(f(tree, jx, jmasks))) for _ in range(3))
        for form, f in steps.items()
    }
    form = min(spent, key=spent.get)

    def peer() -> object:
        return jax.block_until_ready(steps[form](tree, jx, jmasks))

    loss, (grads, grad_x) = peer()
    torch.testing.assert_close(ours().detach(), torch.tensor(float(loss)), rtol=1e-4, atol=1e-6)
    for mine, theirs in (
        (x.grad, grad_x),
        (layer.lru.nu_log.grad, grads["params"]["nu_log"]),
        (layer.lru.B_im.grad, grads["params"]["B_im"]),
        (layer.inner.weight.grad.T, grads["params"]["inner"]["kernel"]),
    ):
        torch.testing.assert_close(mine, torch.from_numpy(np.array(theirs)), rtol=1e-3, atol=1e-6)
    sizes = f"B = {batch}, N = {nodes}, {hops} hops, H = V = {width}"
    what = f"layer, forward and backward, {sizes} (Flax, jitted, {form})"
    return harness.compare(what, ours, peer, repeats=repeats, number=number, unit="ms")


def recurrence_row(repeats: int) -> dict[str, object]:
    """Horner against the weighted sum with powers of lambda, 40 hops."""
    g = torch.Generator().manual_seed(3)
    logs = gred.init_lru_from_uniform(torch.rand(88, generator=g), torch.rand(88, generator=g), r_min=0.9)
    lam = gred.lru_eigenvalues(*logs[:2])
    u = torch.randn(40, 4096, 88, generator=g, dtype=torch.complex64)
    pair = [lambda m=m: gred.linear_recurrence(lam, u, method=m) for m in ("sequential", "sum")]
    torch.testing.assert_close(pair[0](), pair[1](), rtol=1e-3, atol=1e-3)
    return harness.compare(
        "recurrence, 40 hops, 4096 nodes, V = 88: Horner (the sum with powers of lambda)",
        *pair,
        repeats=repeats,
        unit="ms",
    )


def distance_row(repeats: int) -> dict[str, object]:
    """All distances of a batch of small graphs against scipy, graph by graph."""
    adj = graphs(64, 24, 4)
    arrays = [csr_array(a.numpy().astype(float)) for a in adj]

    def peer() -> list[np.ndarray]:
        return [shortest_path(a, method="D", unweighted=True) for a in arrays]

    assert np.array_equal(gred.shortest_path_distances(adj).numpy(), np.stack(peer()))
    return harness.compare(
        "distances of 64 graphs of 24 nodes (scipy, graph by graph)",
        lambda: gred.shortest_path_distances(adj),
        peer,
        repeats=repeats,
        number=5,
        unit="ms",
    )


@click.command()
@click.option("--repeats", default=15, show_default=True, help="Interleaved pairs a row.")
def main(repeats: int) -> None:
    """Time a layer at three sizes, the recurrence and the distances."""
    torch.set_num_threads(1)
    rows = [
        layer_row(32, 38, 5, 72, repeats, 5),
        layer_row(64, 20, 6, 32, repeats, 5),
        layer_row(4, 40, 40, 64, repeats, 1),
        recurrence_row(repeats),
        distance_row(repeats),
    ]
    packages = ["torch", "jax", "flax", "numpy", "scipy"]
    harness.write(
        "gred", "A GRED layer, its recurrence and its distances", "jax and flax, scipy", rows, packages
    )
    assert all(row["ratio"] >= 1 for row in rows[:3]), "the layer is slower than Flax"


if __name__ == "__main__":
    main()
