"""The Triton side of `ipot.accelerate.cuda.project`."""

import triton
import triton.language as tl


@triton.jit
def project_kernel(
    points,
    values,
    out,
    centre,
    inverse,
    kept,
    matrix,
    waves,
    coordinates,
    value_weights,
    offset,
    count,
    samples,
    share,
    eps,
    D: tl.constexpr,
    C: tl.constexpr,
    PHASES: tl.constexpr,
    PADDED: tl.constexpr,
    FEATURES: tl.constexpr,
    OUT: tl.constexpr,
    WIDE: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """A block of points, for some of the samples that share them."""
    kind = waves.dtype.element_ty
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    real = row < count
    sine, cosine = _waves(points, centre, inverse, matrix, row, real, kind, D, PADDED, ROWS)
    # Adding up is a product too, with a column of ones where phases are real; adding across
    # threads would take as long as all the rest. The squares of a sine and its cosine are one.
    phase = tl.arange(0, PADDED)
    ones = (phase < PHASES)[:, None] & (tl.arange(0, 16) == 0)[None, :]
    ones = tl.where(ones, 1.0, 0.0).to(kind)
    total = tl.dot(sine, ones, input_precision="ieee")
    total = tl.sum(tl.dot(cosine, ones, total, input_precision="ieee"), 1)
    squares = tl.full([ROWS], PHASES, tl.float32)
    for axis in tl.static_range(D):
        x = _coordinate(points, centre, inverse, row, real, axis, D) * tl.load(kept + axis)
        total += x
        squares += x * x
    first = tl.program_id(1).to(tl.int64) * share
    last = tl.minimum(first + share, samples)
    for start in range(0, WIDE, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        shared = _from_position(
            points, centre, inverse, waves, coordinates, row, real, sine, cosine, column,
            D, PADDED, WIDE,
        )  # fmt: skip
        behind = tl.load(offset + column)
        inside = real[:, None] & (column < OUT)[None, :]
        place = row + first * count
        for _ in range(first, last):
            mean = total
            for channel in tl.static_range(C):
                mean += tl.load(values + place * C + channel, mask=real, other=0.0)
            mean = mean / (FEATURES + C)
            # About the mean, and not a mean of squares less its square: values may be far from 0.
            spread = squares - 2 * mean * total + FEATURES * mean * mean
            acc = shared
            for channel in tl.static_range(C):
                value = tl.load(values + place * C + channel, mask=real, other=0.0)
                weight = tl.load(value_weights + channel * WIDE + column)
                spread += (value - mean) * (value - mean)
                acc += value[:, None] * weight[None, :]
            scale = tl.rsqrt(tl.maximum(spread / (FEATURES + C), 0.0) + eps)
            acc = acc * scale[:, None] + behind[None, :]
            at = out + place[:, None] * OUT + column[None, :]
            tl.store(at, acc.to(out.dtype.element_ty), mask=inside)
            place += count


@triton.jit
def lift_kernel(
    points,
    values,
    out,
    tokens,
    centre,
    inverse,
    kept,
    matrix,
    waves,
    coordinates,
    value_weights,
    hidden_offset,
    second,
    token_offset,
    third,
    offset,
    count,
    samples,
    share,
    eps,
    D: tl.constexpr,
    C: tl.constexpr,
    PADDED: tl.constexpr,
    HIDDEN: tl.constexpr,
    WIDTH: tl.constexpr,
    BROAD: tl.constexpr,
    OUT: tl.constexpr,
    WIDE: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    BETWEEN: tl.constexpr,
    KEEP: tl.constexpr,
):
    """Features and values through a lift, whose hidden channels are computed block by block, then
    through norm and projection."""
    kind = waves.dtype.element_ty
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    real = row < count
    sine, cosine = _waves(points, centre, inverse, matrix, row, real, kind, D, PADDED, ROWS)
    broad = tl.arange(0, BROAD)
    first = tl.program_id(1).to(tl.int64) * share
    last = tl.minimum(first + share, samples)
    place = row + first * count
    for _ in range(first, last):
        token = tl.zeros([ROWS, BROAD], tl.float32)
        for start in range(0, HIDDEN, BETWEEN):
            column = start + tl.arange(0, BETWEEN)
            # Anew for every sample: that is cheaper than to hold on to all of it.
            acc = _from_position(
                points, centre, inverse, waves, coordinates, row, real, sine, cosine, column,
                D, PADDED, HIDDEN,
            )  # fmt: skip
            acc += tl.load(hidden_offset + column)[None, :]
            for channel in tl.static_range(C):
                value = tl.load(values + place * C + channel, mask=real, other=0.0)
                acc += value[:, None] * tl.load(value_weights + channel * HIDDEN + column)[None, :]
            acc = 0.5 * acc * (1.0 + tl.erf(acc * 0.7071067811865476))
            weight = tl.load(second + column[:, None] * BROAD + broad[None, :])
            token = tl.dot(acc.to(kind), weight, token, input_precision="ieee")
        token += tl.load(token_offset + broad)[None, :]
        if KEEP:
            tl.store(
                tokens + place[:, None] * WIDTH + broad[None, :],
                token.to(tokens.dtype.element_ty),
                mask=real[:, None] & (broad < WIDTH)[None, :],
            )
        if OUT > 0:
            # Padded channels are zeros, and stay so.
            mean = tl.sum(token, 1) / WIDTH
            token = tl.where((broad < WIDTH)[None, :], token - mean[:, None], 0.0)
            scale = tl.rsqrt(tl.sum(token * token, 1) / WIDTH + eps)
            normal = (token * scale[:, None]).to(kind)
            for start in range(0, WIDE, COLUMNS):
                column = start + tl.arange(0, COLUMNS)
                weight = tl.load(third + broad[:, None] * WIDE + column[None, :])
                answer = tl.dot(normal, weight, input_precision="ieee")
                answer += tl.load(offset + column)[None, :]
                at = out + place[:, None] * OUT + column[None, :]
                inside = real[:, None] & (column < OUT)[None, :]
                tl.store(at, answer.to(out.dtype.element_ty), mask=inside)
        place += count


@triton.jit
def _waves(
    points, centre, inverse, matrix, row, real,
    kind: tl.constexpr, D: tl.constexpr, PADDED: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Sines and cosines of π times the multiples of coordinates, rounded to `kind` at the end."""
    phase = tl.arange(0, PADDED)
    turn = tl.zeros([ROWS, PADDED], tl.float32)
    for axis in tl.static_range(D):
        x = _coordinate(points, centre, inverse, row, real, axis, D)
        # A phase belongs to one axis; the other terms are zeros, which round nothing.
        turn += x[:, None] * tl.load(matrix + axis * PADDED + phase)[None, :]
    # Quarter turns are taken off before π comes in. That is exact, and leaves an angle within
    # ±π/4, where short polynomials are good to the last bit. The nearest whole number of quarters
    # is what is left in the low bits beside 1.5 * 2**23, without a slow conversion.
    shifted = 2.0 * turn + 12582912.0
    quarter = shifted.to(tl.int32, bitcast=True)
    turn = turn - 0.5 * (shifted - 12582912.0)
    # Past 2**21 half turns a number has no fraction to speak of, and this is not exact any more;
    # all that matters there is to stay bounded.
    turn = tl.clamp(turn, -0.25, 0.25)
    square = turn * turn
    cosine = 0.23138427734375 * square - 1.33502197265625
    cosine = cosine * square + 4.058703899383545
    cosine = cosine * square - 4.934802055358887
    cosine = cosine * square + 1.0
    sine = 2.5503995418548584 - 0.595703125 * square
    sine = sine * square - 5.167724132537842
    sine = turn * 3.1415927410125732 + turn * square * sine
    odd = (quarter & 1) != 0
    across = tl.where(odd, cosine, sine)
    along = tl.where(odd, sine, cosine)
    across = tl.where((quarter & 2) != 0, -across, across)
    along = tl.where(((quarter + 1) & 2) != 0, -along, along)
    return across.to(kind), along.to(kind)


@triton.jit
def _coordinate(points, centre, inverse, row, real, axis: tl.constexpr, D: tl.constexpr):
    """One coordinate of the points, mapped as `FourierFeatures` maps it.

    The inverse of the radius is in two parts, so that only the last operation rounds, as that of
    a division does; a division itself is slow, and many turns would multiply what an inverse of
    one part is off by.
    """
    x = tl.load(points + row * D + axis, mask=real, other=0.0) - tl.load(centre + axis)
    return tl.fma(x, tl.load(inverse + axis), x * tl.load(inverse + D + axis))


@triton.jit
def _from_position(
    points, centre, inverse, waves, coordinates, row, real, sine, cosine, column,
    D: tl.constexpr, PADDED: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """What the features give to some columns of a projection."""
    phase = tl.arange(0, PADDED)
    at = waves + phase[:, None] * WIDE + column[None, :]
    acc = tl.dot(sine, tl.load(at), input_precision="ieee")
    acc = tl.dot(cosine, tl.load(at + PADDED * WIDE), acc, input_precision="ieee")
    for axis in tl.static_range(D):
        x = _coordinate(points, centre, inverse, row, real, axis, D)
        acc += x[:, None] * tl.load(coordinates + axis * WIDE + column)[None, :]
    return acc
