"""What units mean, and data sets in units of their own."""

import warnings

import numpy as np
import pytest
from own import tiny
from surrogate.test_encoded import built, surrogate_of

from ipot.data.own import Dataset
from ipot.data.quantities import Agreement, change, looks_like, unit_in_name
from ipot.errors import DataError


@pytest.mark.parametrize(
    ("given", "wanted", "number", "becomes"),
    [
        ("degC", "K", 20.0, 293.15),
        ("K", "celsius", 273.15, 0.0),
        ("°C", "degrees_fahrenheit", 100.0, 212.0),
        ("C", "kelvin", 0.0, 273.15),
        ("hPa", "Pa", 1013.25, 101325.0),
        ("mbar", "hPa", 1000.0, 1000.0),
        ("atm", "kPa", 1.0, 101.325),
        ("degrees_north", "rad", 180.0, np.pi),
        ("radians", "degree", np.pi / 2, 90.0),
        ("m s-1", "km/h", 10.0, 36.0),
        ("m s**-1", "knots", 1852 / 3600, 1.0),
        ("mm/day", "m s-1", 86400.0, 1e-3),
        ("g/kg", "kg kg-1", 5.0, 5e-3),
        ("%", "1", 50.0, 0.5),
        ("W/m²", "W m-2", 3.0, 3.0),
        ("W m-2 degC-1", "W m**-2 K**-1", 3.0, 3.0),
        ("J m-2 s-1", "kW m-2", 1000.0, 1.0),
        ("kg.m-2.s-1", "kg/m2/s", 3.0, 3.0),
        ("1 s-1", "Hz", 3.0, 3.0),
        ("C/km", "K/m", 6.5, 6.5e-3),
        ("W/m2/C", "kW m-2 K-1", 1000.0, 1.0),
        ("C/m2", "mA s m-2", 1.0, 1000.0),
    ],
)
def test_known_units_are_converted(given, wanted, number, becomes):
    assert change(given, wanted).apply(number) == pytest.approx(becomes, rel=1e-12)
    assert change(wanted, given).apply(becomes) == pytest.approx(number, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize(
    ("given", "wanted"), [("K", "Pa"), ("m", "kg m-2"), ("1", "deg"), ("C/km", "K"), ("C/km", "Pa")]
)
def test_contradictions_are_refused(given, wanted):
    said = f"a.nc: T is in {given}, and in b.nc in {wanted}: neither can be converted"
    with pytest.raises(DataError, match=said):
        Agreement("b.nc").change("T", given, wanted, source="a.nc")


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("m s**-1", "m/s"),
        ("", "K"),
        ("C/km", "K/km"),
        ("K", "unknown"),
        ("psu", "PSU"),
        ("1", "kg/kg"),
        ("~", "m"),
    ],
)
def test_other_spellings_and_nothing_said_are_no_matter(given, wanted):
    agreed = Agreement("b.nc")
    assert agreed.change("T", given, wanted, source="a.nc") is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        agreed.say()


def test_units_that_are_not_known_are_remarked_on_once():
    agreed = Agreement("b.nc")
    for i in range(3):
        assert agreed.change("S", "psu", "g/kg", source=f"{i}.nc") is None
    with pytest.warns(UserWarning, match="0.nc and 2 more: S is in 'psu', and in b.nc") as seen:
        agreed.say()
    assert len(seen) == 1


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("1000 hPa", "hPa"),
        ("1000 kg m-3", "kg m-3"),
        ("K/1000", "K"),
        ("10 m", "m"),
        ("1.1 m", "m"),
        ("1000", "1"),
        ("km400", "km"),
        ("Tm99", "m"),
        ("Tm9 Tm9 Tm9", "m"),
        ("nm-9 nm-9 / nm9 nm9", "m"),
    ],
)
def test_numbers_and_high_powers_are_not_known(given, wanted):
    assert change(given, wanted) is None
    assert change(wanted, given) is None
    agreed = Agreement("b.nc")
    assert agreed.change("p", given, wanted, source="a.nc") is None
    with pytest.warns(UserWarning, match="These are not compared"):
        agreed.say()


def test_one_unit_is_mistaken_for_another_only_where_that_is_plain():
    assert looks_like("K", (0.0, 30.0), (200.0, 320.0)) == "degC"
    assert looks_like("celsius", (290.0, 300.0), (0.0, 30.0)) == "K"
    assert looks_like("Pa", (950.0, 1030.0), (94000.0, 104000.0)) == "hPa"
    assert looks_like("K", (330.0, 340.0), (200.0, 320.0)) is None
    assert looks_like("K", (0.0, 250.0), (200.0, 320.0)) is None
    assert looks_like("", (0.0, 30.0), (200.0, 320.0)) is None


def test_names_of_columns_hold_units():
    assert unit_in_name("T [K]") == ("T", "K")
    assert unit_in_name("p (hPa)") == ("p", "hPa")
    for name in ("u(t-0)", "T [my own]", "v", "h (1)", "u[2]", "u[10]", "a [km400]"):
        assert unit_in_name(name) == (name, "")


# ---- data sets and models

A, U = tiny.waves(5, tiny.X)
KELVIN = {"points": tiny.X, "values": 300 + A, "targets": 100_000 + 50 * U}
CELSIUS = {"points": tiny.X, "values": 300 + A - 273.15, "targets": (100_000 + 50 * U) / 100}
NAMES = {"inputs": "T", "outputs": "p"}


def data(given, *units):
    return Dataset.from_arrays(**given, **NAMES, units=dict(zip("Tp", units, strict=True)))


def test_inputs_and_targets_keep_their_units():
    spec = data(KELVIN, "K", "Pa").spec
    assert (spec.input_units, spec.units) == (("K",), ("Pa",))


def test_a_model_is_scored_in_its_own_units():
    model = surrogate_of(data(KELVIN, "K", "Pa"))
    expected = model.evaluate(data(KELVIN, "K", "Pa")).rmse_per_time[0]
    with pytest.warns(UserWarning, match="converted from") as seen:
        found = model.evaluate(data(CELSIUS, "degC", "hPa")).rmse_per_time[0]
    assert [str(w.message) for w in seen] == [
        "the data: T is converted from degC to K, its unit in the model",
        "the data: p is converted from hPa to Pa, its unit in the model",
    ]
    assert found == pytest.approx(expected, rel=1e-3)
    with pytest.raises(DataError, match="T is in Pa, and in the model in K"):
        model.evaluate(data(KELVIN, "Pa", "Pa"))


def test_numbers_that_look_like_another_unit_are_remarked_on():
    model = surrogate_of(data(KELVIN, "K", "Pa"))
    with pytest.warns(UserWarning, match=r"in training from .* K: this looks like degC"):
        model.predict(tiny.X, CELSIUS["values"])


@pytest.mark.filterwarnings("ignore:.* lie outside the domain")
def test_places_in_radians_are_noticed():
    globe = tiny.arrays("globe")
    radians = np.deg2rad(globe["points"])
    with pytest.warns(UserWarning, match="geographic: longitudes go from 0 to 5.498.*radians"):
        Dataset.from_arrays(**globe | {"points": radians})
    with pytest.warns(UserWarning, match="points have longitudes.*radians; the model was trained"):
        built("globe").predict(radians, globe["values"][0])
    part = tiny.arrays("globe") | {"points": globe["points"] / 10 + [20.0, 45.0]}
    model = surrogate_of(Dataset.from_arrays(**part))
    with pytest.warns(UserWarning, match="radians; the model was trained in degrees"):
        model.predict(np.deg2rad(part["points"]), part["values"][0])


def test_degrees_near_the_zero_are_not_mistaken():
    globe = tiny.arrays("globe")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = built("globe")
        model.predict(globe["points"], globe["values"][0], [[1.0, 0.5], [2.0, -0.5]])
