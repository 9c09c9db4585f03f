"""Small meshes of every kind that goes through VTK's own library, to be changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from campaign.attacks._seeds import FOLDER, HDF5, XML, Seed, by, case, vtu

TEXT = ("xml number", "xml number", "words of a text")
WORDS = ("aligned header words",) * 3
NAMING = (*XML, "xml piece elsewhere", *FOLDER)


def _grid() -> Any:
    """A few cells of a regular grid, with a field at its points and one on its cells."""
    import pyvista

    grid = pyvista.ImageData(dimensions=(3, 3, 2))
    grid["a"] = np.cos(np.arange(grid.n_points))
    grid.cell_data["p"] = np.arange(float(grid.n_cells))
    return grid


def _grids(folder: Path, suffix: str) -> Path:
    grid = _grid()
    ways = {".vtr": "cast_to_rectilinear_grid", ".vts": "cast_to_structured_grid"}
    made = getattr(grid, ways[suffix])() if suffix in ways else grid
    made.save(folder / f"a{suffix}")
    return folder / f"a{suffix}"


def _surface(folder: Path, suffix: str, *, binary: bool = False) -> Path:
    import pyvista

    found = case(0)
    assert found.mesh is not None
    faces = np.insert(found.mesh.connectivity.reshape(-1, 3), 0, 3, axis=1)
    made = pyvista.PolyData(found.points, faces=faces.ravel())
    made.save(folder / f"a{suffix}", binary=binary)
    return folder / f"a{suffix}"


def _legacy(folder: Path, *, binary: bool) -> Path:
    import pyvista

    found = case(0)
    cloud = pyvista.PolyData(found.points)
    for name, array in found.fields.items():
        cloud[name] = array
    cloud.save(folder / "a.vtk", binary=binary)
    return folder / "a.vtk"


def _pieces(folder: Path) -> Path:
    (folder / "parts").mkdir()
    for i in range(2):
        (folder / "parts" / f"p{i}.vtu").write_bytes(vtu("base64"))
    arrays = "".join(
        f'<PDataArray type="Float64" Name="{n}" NumberOfComponents="{w}"/>'
        for n, w in (("a", 1), ("u", 1), ("w", 3))
    )
    (folder / "parts" / "a.pvtu").write_text(
        '<?xml version="1.0"?>\n<VTKFile type="PUnstructuredGrid" version="1.0" '
        'byte_order="LittleEndian" header_type="UInt32">\n<PUnstructuredGrid GhostLevel="0">'
        f"<PPointData>{arrays}</PPointData>"
        '<PCellData><PDataArray type="Float64" Name="p"/></PCellData>'
        '<PPoints><PDataArray type="Float64" Name="Points" NumberOfComponents="3"/></PPoints>'
        '<Piece Source="p0.vtu"/><Piece Source="p1.vtu"/></PUnstructuredGrid></VTKFile>\n'
    )
    return folder / "parts"


def _image_pieces(folder: Path) -> Path:
    (folder / "parts").mkdir()
    _grid().save(folder / "parts" / "p0.vti")
    (folder / "parts" / "a.pvti").write_text(
        '<?xml version="1.0"?>\n<VTKFile type="PImageData" version="1.0" '
        'byte_order="LittleEndian" header_type="UInt32">\n<PImageData WholeExtent="0 2 0 2 0 1" '
        'GhostLevel="0" Origin="0 0 0" Spacing="1 1 1"><PPointData><PDataArray type="Float64" '
        'Name="a"/></PPointData><PCellData><PDataArray type="Float64" Name="p"/></PCellData>'
        '<Piece Extent="0 2 0 2 0 1" Source="p0.vti"/></PImageData></VTKFile>\n'
    )
    return folder / "parts"


def _blocks(folder: Path) -> Path:
    (folder / "blocks").mkdir()
    (folder / "blocks" / "p0.vtu").write_bytes(vtu("ascii"))
    (folder / "blocks" / "a.vtm").write_text(
        '<?xml version="1.0"?>\n<VTKFile type="vtkMultiBlockDataSet" version="1.0" '
        'byte_order="LittleEndian">\n<vtkMultiBlockDataSet>'
        '<DataSet index="0" file="p0.vtu"/></vtkMultiBlockDataSet></VTKFile>\n'
    )
    return folder / "blocks"


def _ensight(folder: Path) -> Path:
    """One tetrahedron in EnSight's text files, with a field at its points."""
    home = folder / "ensight"
    home.mkdir()
    (home / "a.case").write_text(
        "FORMAT\ntype: ensight gold\nGEOMETRY\nmodel: a.geo\nVARIABLE\nscalar per node: a a.scl\n"
    )
    corners = "".join(f"{x:12.5e}\n" for x in (0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1))
    (home / "a.geo").write_text(
        "a mesh\nof one cell\nnode id assign\nelement id assign\npart\n         1\nall of it\n"
        f"coordinates\n         4\n{corners}tetra4\n         1\n"
        "         1         2         3         4\n"
    )
    numbers = "".join(f"{x:12.5e}\n" for x in (0.5, 1.5, 2.5, 3.5))
    (home / "a.scl").write_text(f"a field\npart\n         1\ncoordinates\n{numbers}")
    return home


def _openfoam(folder: Path) -> Path:
    """One cube in OpenFOAM's text files, with a field on its cell."""
    home = folder / "foam"
    mesh = home / "constant" / "polyMesh"
    for place in (mesh, home / "0", home / "system"):
        place.mkdir(parents=True)
    (home / "a.foam").write_text("\n")

    def put(path: Path, kind: str, body: str) -> None:
        head = f"version 2.0; format ascii; class {kind}; object {path.name};"
        path.write_text(f"FoamFile\n{{ {head} }}\n{body}\n")

    corners = [(x, y, z) for z in (0, 1) for y in (0, 1) for x in (0, 1)]
    faces = [(0, 2, 3, 1), (4, 5, 7, 6), (0, 1, 5, 4), (2, 6, 7, 3), (0, 4, 6, 2), (1, 3, 7, 5)]
    rows = ["({} {} {})".format(*p) for p in corners]
    put(mesh / "points", "vectorField", "8\n(\n" + "\n".join(rows) + "\n)")
    rows = ["4({} {} {} {})".format(*f) for f in faces]
    put(mesh / "faces", "faceList", "6\n(\n" + "\n".join(rows) + "\n)")
    put(mesh / "owner", "labelList", "6\n(\n" + "0\n" * 6 + ")")
    put(mesh / "neighbour", "labelList", "0\n(\n)")
    walls = "1\n(\nwalls { type wall; nFaces 6; startFace 0; }\n)"
    put(mesh / "boundary", "polyBoundaryMesh", walls)
    field = "dimensions [0 2 -2 0 0 0 0];\ninternalField nonuniform List<scalar> 1(2.5);\n"
    field += "boundaryField { walls { type zeroGradient; } }"
    put(home / "0" / "p", "volScalarField", field)
    put(home / "system" / "controlDict", "dictionary", "startTime 0;\nendTime 1;\ndeltaT 1;")
    return home


def _exodus(folder: Path) -> Path:
    """One tetrahedron as Exodus, which is netCDF, with a field at its points."""
    import netCDF4

    sizes = {"len_string": 33, "len_line": 81, "four": 4, "num_dim": 3, "num_nodes": 4}
    sizes |= {"num_elem": 1, "num_el_blk": 1, "num_el_in_blk1": 1, "num_nod_per_el1": 4}
    sizes |= {"num_nod_var": 1}
    with netCDF4.Dataset(folder / "a.exo", "w", format="NETCDF3_64BIT_OFFSET") as file:
        file.setncatts({"title": "one cell", "floating_point_word_size": np.int32(8)})
        file.setncatts({"api_version": np.float32(5.14), "version": np.float32(5.14)})
        file.setncatts({"file_size": np.int32(1)})
        file.createDimension("time_step", None)
        for name, size in sizes.items():
            file.createDimension(name, size)
        for axis, along in zip("xyz", np.eye(3), strict=True):
            file.createVariable(f"coord{axis}", "f8", ("num_nodes",))[:] = [0, *along]
        file.createVariable("eb_status", "i4", ("num_el_blk",))[:] = 1
        numbers = file.createVariable("eb_prop1", "i4", ("num_el_blk",))
        numbers.setncattr("name", "ID")
        numbers[:] = 1
        joined = file.createVariable("connect1", "i4", ("num_el_in_blk1", "num_nod_per_el1"))
        joined.setncattr("elem_type", "TETRA4")
        joined[:] = [[1, 2, 3, 4]]
        file.createVariable("time_whole", "f8", ("time_step",))[0] = 0.0
        names = file.createVariable("name_nod_var", "S1", ("num_nod_var", "len_string"))
        names[0] = np.frombuffer(b"a".ljust(33, b"\0"), "S1")
        field = file.createVariable("vals_nod_var1", "f8", ("time_step", "num_nodes"))
        field[0] = [0.5, 1.5, 2.5, 3.5]
    return folder / "a.exo"


def _cgns(folder: Path) -> Path:
    """One tetrahedron as CGNS, which is HDF5, with a field at its points."""
    import h5py

    def node(parent: Any, name: str, label: str, data: Any = None) -> Any:
        made = parent.create_group(name, track_order=True)
        kinds = {"float64": "R8", "int32": "I4", "int8": "C1"}
        array = None if data is None else np.asarray(data)
        kind = "MT" if array is None else kinds[str(array.dtype)]
        for key, text, size in (("name", name, 33), ("label", label, 33), ("type", kind, 3)):
            made.attrs.create(key, np.array(text.encode(), f"S{size}"))
        if array is not None:
            made.create_dataset(" data", data=array)
        return made

    def words(text: str) -> np.ndarray:
        return np.frombuffer(text.encode(), np.int8)

    with h5py.File(folder / "a.cgns", "w", track_order=True) as file:
        for key, text, size in (
            ("name", "HDF5 MotherNode", 33),
            ("label", "Root Node of HDF5 File", 33),
            ("type", "MT", 3),
        ):
            file.attrs.create(key, np.array(text.encode(), f"S{size}"))
        file.create_dataset(" format", data=words("IEEE_LITTLE_32\0"))
        file.create_dataset(" hdf5version", data=words("HDF5 Version 1.10.0".ljust(33, "\0")))
        node(file, "CGNSLibraryVersion", "CGNSLibraryVersion_t", np.array([3.2]))
        base = node(file, "Base", "CGNSBase_t", np.array([3, 3], np.int32))
        zone = node(base, "Zone", "Zone_t", np.array([[4], [1], [0]], np.int32))
        node(zone, "ZoneType", "ZoneType_t", words("Unstructured"))
        places = node(zone, "GridCoordinates", "GridCoordinates_t")
        for axis, along in zip("XYZ", np.eye(3), strict=True):
            node(places, f"Coordinate{axis}", "DataArray_t", np.array([0, *along]))
        cells = node(zone, "Cells", "Elements_t", np.array([10, 0], np.int32))
        node(cells, "ElementRange", "IndexRange_t", np.array([1, 1], np.int32))
        joined = np.array([1, 2, 3, 4], np.int32)
        node(cells, "ElementConnectivity", "DataArray_t", joined)
        found = node(zone, "Solution", "FlowSolution_t")
        node(found, "GridLocation", "GridLocation_t", words("Vertex"))
        node(found, "a", "DataArray_t", np.array([0.5, 1.5, 2.5, 3.5]))
    return folder / "a.cgns"


_ONE, _VISTA = ("read", "inspect"), ("pyvista",)

SEEDS = (
    Seed("pvtu", "vtk", _pieces, ("pieces", "piece list"), NAMING, needs=_VISTA),
    Seed("pvti", "vtk", _image_pieces, ("image pieces",), NAMING, needs=_VISTA),
    Seed("vtm", "vtk", _blocks, ("blocks",), (*NAMING, "xml number"), needs=_VISTA),
    Seed("vtk", "vtk", by(_legacy, binary=False), _ONE, TEXT, needs=_VISTA),
    Seed("vtk binary", "vtk", by(_legacy, binary=True), _ONE, needs=_VISTA),
    Seed("vti", "vtk", by(_grids, ".vti"), _ONE, XML, needs=_VISTA),
    Seed("vtr", "vtk", by(_grids, ".vtr"), _ONE, XML, needs=_VISTA),
    Seed("vts", "vtk", by(_grids, ".vts"), _ONE, XML, needs=_VISTA),
    Seed("stl", "vtk", by(_surface, ".stl"), _ONE, TEXT, needs=_VISTA),
    Seed("stl binary", "vtk", by(_surface, ".stl", binary=True), _ONE, WORDS, needs=_VISTA),
    Seed("ply", "vtk", by(_surface, ".ply"), _ONE, TEXT, needs=_VISTA),
    Seed("ply binary", "vtk", by(_surface, ".ply", binary=True), _ONE, needs=_VISTA),
    Seed("obj", "vtk", by(_surface, ".obj"), _ONE, TEXT, needs=_VISTA),
    Seed("ensight", "vtk", _ensight, ("ensight",), (*TEXT, *FOLDER), needs=_VISTA),
    Seed("openfoam", "vtk", _openfoam, ("openfoam",), (*TEXT, *FOLDER), needs=_VISTA),
    Seed("exodus", "vtk", _exodus, _ONE, WORDS, needs=("pyvista", "netCDF4")),
    Seed("cgns", "vtk", _cgns, _ONE, HDF5, needs=_VISTA),
)
