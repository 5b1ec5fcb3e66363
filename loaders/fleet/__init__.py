"""A fleet's store: segments of many collectors, in a folder, on a shared file system or in a bucket."""

from mycroft.loaders.fleet.compaction import Compacted, compact
from mycroft.loaders.fleet.manifest import FleetManifest, FleetSegment, FleetStore, FleetStoreError, Retained
from mycroft.loaders.fleet.pieces import FilesPiece, pieces_of
from mycroft.loaders.fleet.place import Place, PlaceError, open_place
from mycroft.loaders.fleet.reading import FleetReader, NoStoreError, open_fleet
from mycroft.loaders.fleet.shipping import Shipped, ship

__all__ = [
    "Compacted",
    "FilesPiece",
    "FleetManifest",
    "FleetReader",
    "FleetSegment",
    "FleetStore",
    "FleetStoreError",
    "NoStoreError",
    "Place",
    "PlaceError",
    "Retained",
    "Shipped",
    "compact",
    "open_fleet",
    "open_place",
    "pieces_of",
    "ship",
]
