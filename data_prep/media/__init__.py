"""Media files: probing, decoding, a sandbox for decoders, a cache of frames, and a survey of a folder."""

from .containers import FileStamp, MediaInfo, PacketIndex, check_segment, file_stamp, open_video, packet_index, probe
from .frame_cache import FileHashes, FrameCache, frames_key
from .frames import (
    MAX_IMAGE_PIXELS,
    SIDE_STEP,
    Frames,
    FrameSampling,
    fit_pixels,
    frame_times,
    image_size,
    read_frames,
    read_image,
    read_media_piece,
    target_size,
)
from .sandbox import GuardedReader, Outcome, guarded, run_guarded
from .survey import ImageInfo, Kind, MediaFile, media_rows, media_table, outside_root, probe_all, probe_each

__all__ = [
    "MAX_IMAGE_PIXELS",
    "SIDE_STEP",
    "FileHashes",
    "FileStamp",
    "FrameCache",
    "FrameSampling",
    "Frames",
    "GuardedReader",
    "ImageInfo",
    "Kind",
    "MediaFile",
    "MediaInfo",
    "Outcome",
    "PacketIndex",
    "check_segment",
    "file_stamp",
    "fit_pixels",
    "frame_times",
    "frames_key",
    "guarded",
    "image_size",
    "media_rows",
    "media_table",
    "open_video",
    "outside_root",
    "packet_index",
    "probe",
    "probe_all",
    "probe_each",
    "read_frames",
    "read_image",
    "read_media_piece",
    "run_guarded",
    "target_size",
]
