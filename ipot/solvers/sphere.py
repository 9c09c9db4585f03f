"""Spherical harmonics: scalars and vectors on the unit sphere, and their derivatives.

    f(φ, λ) = Σ_l Σ_{|m| ≤ l} f_lm Y_lm,   Y_lm = P_lm(sin φ) exp(imλ),   ∫ |Y_lm|² dΩ = 1

with latitude φ, longitude λ and l up to `lmax` (triangular truncation). The harmonics are
orthonormal and carry no sign (-1)^m: every P_mm is positive. Fields are real, so that f_l,-m is
the conjugate of f_lm and only m ≥ 0 is kept: coefficients are complex, (..., m, l), with zeros
where l < m. The mean of a field is f_00 / √(4π). Fields are (..., rows, columns) from north to
south and eastward from λ = 0; vectors are (east, north); lengths are in radii.

Legendre functions come from their three-term recursion. A transform is an FFT along the rows and
one product with a table for each m. Hack and Jakob, NCAR/TN-343 (1992).
"""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Complex, Float
from torch import Tensor
from torch.nn.functional import pad

Field = Float[Tensor, "*batch rows columns"]
Coefficients = Complex[Tensor, "*batch m l"]

_NO_QUADRATURE = (
    "lines of latitude of your own have no quadrature and serve for synthesis only: leave "
    "`latitudes` out to have Gauss's lines"
)


class Transform:
    """Between fields on lines of latitude and coefficients up to `lmax`.

    Without `latitudes` the lines are those of Gauss and Legendre: sums with `weights` integrate
    polynomials of sin φ up to degree 2 rows - 1 exactly. So `analysis` undoes `synthesis` for any
    rows > lmax, and products of two fields are free of aliasing for rows > 3 lmax / 2. With
    `latitudes`, any lines, there is no quadrature: only synthesis is possible. In float64 unless
    told otherwise: a GPU may round the products of float32 to 10 bits.
    """

    def __init__(
        self,
        lmax: int,
        rows: int,
        columns: int | None = None,
        *,
        dtype: torch.dtype = torch.float64,
        device: torch.device | str | None = None,
        latitudes: Float[Tensor, " rows"] | None = None,
    ) -> None:
        columns = 2 * rows if columns is None else columns
        _check_sizes(lmax, rows, columns, latitudes)
        self.lmax, self.rows, self.columns = lmax, rows, columns

        def tensor(array: np.ndarray) -> Tensor:
            return torch.from_numpy(array.astype(np.float64)).to(device, dtype)

        own = None if latitudes is None else latitudes.detach().cpu().double().numpy()
        sine, cosine, weights = _gauss(rows) if own is None else (np.sin(own), np.cos(own), None)
        self.latitudes = tensor(np.arctan2(sine, cosine))
        """Radians, from north to south where they are Gauss's."""
        self.longitudes = tensor(2 * np.pi * np.arange(columns) / columns)
        """2π j / columns."""
        self._cosine = tensor(cosine)[:, None]
        self._has_pole = bool((cosine < 1e-12).any())

        degree = np.arange(lmax + 1)
        self.degree = tensor(degree)
        """l, along the last axis of coefficients."""
        self.laplacian = tensor(-degree * (degree + 1))
        """What the Laplacian multiplies each degree by."""
        self.inverse_laplacian = tensor(-1 / np.where(degree > 0, degree * (degree + 1.0), np.inf))
        """Its inverse on fields without a mean; zero for the mean."""
        self._turn = 1j * self.degree[:, None]
        # (1 - μ²) dP_l/dμ = (l + 1) e_l P_{l-1} - l e_{l+1} P_{l+1}: one degree beyond lmax.
        e = _ratios(lmax)
        self._down, self._up = tensor((degree + 1) * e[:, :-1]), tensor(degree * e[:, 1:])
        table = _legendre(sine, cosine, e)
        self._to_rows = tensor(table)
        self._weights = self._from_rows = None
        if weights is not None:
            self._weights = tensor(weights)
            area = 2 * np.pi / columns * weights
            self._from_rows = tensor((table * area).swapaxes(1, 2)).contiguous()

    @property
    def weights(self) -> Float[Tensor, " rows"]:
        """Gauss's weights of the rows, for integrals over sin φ: their sum is 2."""
        if self._weights is None:
            raise ValueError(_NO_QUADRATURE)
        return self._weights

    def mean(self, field: Field) -> Float[Tensor, "*batch"]:
        """The mean over the sphere, by quadrature."""
        return (field.mean(-1) * self.weights).sum(-1) / 2

    def analysis(self, field: Field) -> Coefficients:
        """The coefficients of a field."""
        return self._from_grid(field)[..., : self.lmax + 1]

    def fit(self, field: Field, ridge: float = 1e-3) -> Coefficients:
        """The coefficients of a field by least squares, on any lines of latitude.

        Each line counts by its length. The ridge grows as l⁸ and is felt at the highest degrees
        alone, which few lines may leave open.
        """
        shape = field.shape[:-2]
        waves = torch.fft.rfft(field.reshape(-1, self.rows, self.columns), norm="forward")
        waves = waves[..., : self.lmax + 1].permute(2, 1, 0)  # (m, rows, B)
        length = self._cosine.sqrt()
        table = self._to_rows[:, : self.lmax + 1].mT * length  # (m, rows, l)
        square = table.mT @ table + torch.diag(ridge * (self.degree / max(self.lmax, 1)) ** 8)
        # Degrees below m are not there: a one on the diagonal makes them zero.
        square += torch.diag_embed((self.degree < self.degree[:, None]).to(square))
        known = table.mT.to(waves) @ (length * waves)
        found = torch.linalg.solve(square.to(waves), known)  # (m, l, B)
        return found.permute(2, 0, 1).reshape(*shape, self.lmax + 1, self.lmax + 1)

    def synthesis(self, coefficients: Coefficients) -> Field:
        """The field with these coefficients."""
        return self._to_grid(pad(coefficients, (0, 1)))

    def gradient(self, coefficients: Coefficients) -> tuple[Field, Field]:
        """(∂f/∂λ / cos φ, ∂f/∂φ) on the grid."""
        return self._flow(torch.zeros_like(coefficients), coefficients)

    def velocity(self, vorticity: Coefficients, divergence: Coefficients) -> tuple[Field, Field]:
        """The flow (u, v) on the grid that has this vorticity and divergence."""
        inverse = self.inverse_laplacian
        return self._flow(inverse * vorticity, inverse * divergence)

    def rotation(self, east: Field, north: Field) -> tuple[Coefficients, Coefficients]:
        """The vorticity and the divergence of a flow on the grid."""
        u, v = self._from_grid(torch.stack((east, north)) / self._cosine)
        return self._along(v) - self._across(u), self._along(u) + self._across(v)

    def _flow(self, stream: Tensor, potential: Tensor) -> tuple[Tensor, Tensor]:
        """k x grad ψ + grad χ; times cos φ it is a sum of harmonics up to lmax + 1."""
        if self._has_pole:
            raise ValueError("east and north have no meaning at a pole: leave ±90 degrees out")
        both = torch.stack((stream, potential))
        zonal = pad(self._turn * both, (0, 1))
        down, up = self._down[:, 1:] * both[..., 1:], self._up * both
        meridional = pad(down, (0, 2)) - pad(up, (1, 0))
        east, north = zonal[1] - meridional[0], zonal[0] + meridional[1]
        u, v = self._to_grid(torch.stack((east, north))) / self._cosine
        return u, v

    def _along(self, f: Tensor) -> Tensor:
        """Coefficients of ∂f/∂λ."""
        return self._turn * f[..., :-1]

    def _across(self, f: Tensor) -> Tensor:
        """Coefficients of ∂(f cos² φ)/∂φ / cos φ, by parts; f itself is known up to lmax + 1."""
        return self._up * f[..., 1:] - self._down * pad(f[..., :-2], (1, 0))

    def _to_grid(self, coefficients: Tensor) -> Tensor:
        """Coefficients up to lmax + 1 to fields."""
        waves = torch.bmm(_flat(coefficients), self._to_rows)  # (m, 2 B, rows)
        waves = waves.unflatten(1, (-1, 2)).permute(1, 3, 0, 2).contiguous()
        fields = torch.fft.irfft(torch.view_as_complex(waves), n=self.columns, norm="forward")
        return fields.view(*coefficients.shape[:-2], self.rows, self.columns)

    def _from_grid(self, field: Tensor) -> Tensor:
        """Fields to coefficients up to lmax + 1."""
        if self._from_rows is None:
            raise ValueError(_NO_QUADRATURE)
        waves = torch.fft.rfft(field)[..., : self.lmax + 1].mT
        sums = torch.bmm(_flat(waves), self._from_rows)  # (m, 2 B, l)
        sums = sums.unflatten(1, (-1, 2)).permute(1, 0, 3, 2).contiguous()
        return torch.view_as_complex(sums).view(*field.shape[:-2], *sums.shape[1:3])


def _flat(x: Tensor) -> Tensor:
    """(..., m, i) complex as (m, 2 B, i) real, where the tables of each m are real factors."""
    parts = torch.view_as_real(x).reshape(-1, *x.shape[-2:], 2)
    return parts.permute(1, 0, 3, 2).flatten(1, 2)


def _gauss(rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """sin φ and cos φ of Gauss's lines, from north to south, and their weights.

    With more digits than float64 has, where the machine knows them: close to a pole, cos φ and the
    weights lose four digits of those that sin φ has.
    """
    x = np.polynomial.legendre.leggauss(rows)[0][::-1].astype(np.longdouble)
    slope = x
    for _ in range(2):
        before, here = np.zeros_like(x), np.ones_like(x)
        for n in range(rows):
            before, here = here, ((2 * n + 1) * x * here - n * before) / (n + 1)
        square = (1 - x) * (1 + x)
        slope = rows * (before - x * here) / square
        x = x - here / slope
    x = (x - x[::-1]) / 2
    square = (1 - x) * (1 + x)
    return x, np.sqrt(square), 2 / (square * slope**2)


def _ratios(lmax: int) -> np.ndarray:
    """e_lm = √((l² - m²) / (4l² - 1)) for m up to lmax and l up to lmax + 1; 0 where l < m."""
    degree = np.arange(lmax + 2, dtype=np.longdouble)
    order = degree[:-1, None]
    return np.sqrt(np.maximum(degree**2 - order**2, 0) / np.maximum(4 * degree**2 - 1, 1))


def _legendre(sine: np.ndarray, cosine: np.ndarray, e: np.ndarray) -> np.ndarray:
    """P_lm as (m, l, row), by μ P_l = e_l P_{l-1} + e_{l+1} P_{l+1}: stable upward in l."""
    orders, degrees = e.shape
    table = np.zeros((orders, degrees, len(sine)), dtype=np.longdouble)
    diagonal = np.full_like(sine, 1 / np.sqrt(4 * np.pi), dtype=np.longdouble)
    for n in range(degrees):
        if n < orders:
            table[n, n] = diagonal
            diagonal = diagonal * cosine * np.sqrt(np.longdouble(2 * n + 3) / (2 * n + 2))
        if n > 0:
            # For l = m + 1 there is no P_{l-2}, and e_mm = 0 takes it away.
            rest = e[:n, n - 1, None] * table[:n, n - 2]
            table[:n, n] = (sine * table[:n, n - 1] - rest) / e[:n, n, None]
    return table


def _check_sizes(lmax: int, rows: int, columns: int, latitudes: Tensor | None) -> None:
    if lmax < 0 or columns <= 2 * lmax:
        raise ValueError(
            f"waves up to m = {lmax} need lmax >= 0 and more than {2 * lmax} columns, got {columns}"
        )
    if latitudes is None and rows <= lmax:
        raise ValueError(f"degrees up to {lmax} need more than {lmax} rows, got {rows}")
    if latitudes is not None and tuple(latitudes.shape) != (rows,):
        raise ValueError(f"expected {rows} latitudes, got shape {tuple(latitudes.shape)}")
    if latitudes is not None and not bool((latitudes.abs() <= math.pi / 2 + 1e-6).all()):
        raise ValueError("latitudes must be radians between -π/2 and π/2")
