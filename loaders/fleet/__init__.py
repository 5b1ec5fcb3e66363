"""A fleet's store: segments of many collectors, in a folder, on a shared file system or in a bucket."""

from mycroft.loaders.fleet.manifest import FleetManifest, FleetSegment, FleetStore, FleetStoreError
from mycroft.loaders.fleet.pieces import FilesPiece, pieces_of
from mycroft.loaders.fleet.place import Place, PlaceError, open_place

__all__ = [
    "FilesPiece",
    "FleetManifest",
    "FleetSegment",
    "FleetStore",
    "FleetStoreError",
    "Place",
    "PlaceError",
    "open_place",
    "pieces_of",
]
