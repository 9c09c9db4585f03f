"""Checks that a file from elsewhere passes before a library opens it.

paths     a regular file, and links and pieces that stay inside their folder
hdf5      nothing outside the file is named, and sizes that its bytes can stand for
netcdf    the header of netCDF-3, and HDF5 as above
grib      messages and sections that fill the file
zarr      nothing outside the store, known codecs, as many chunks as can be counted
archive   zip members that lie apart and are as large as they say
trial     all of this, and a first reading, in a child process with limits
"""
