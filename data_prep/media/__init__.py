"""Media files: probing, decoding, a sandbox for decoders, a cache of frames, and a survey of a folder."""

from .containers import FileStamp, MediaInfo, PacketIndex, check_segment, file_stamp, open_video, packet_index, probe
from .frame_cache import FileHashes, FrameCache, frames_key
from .frame_files import frames_shown, frames_within, piece_stamps, read_media_piece, shown_times
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
    square_pixels,
    target_size,
    upright_rgb,
)
from .picture_files import keep_picture, picture_directory
from .sandbox import GuardedReader, Outcome, fetched, guarded, probe_guarded, run_guarded
from .sound_probe import SoundInfo, check_sound, notes_on_sound, probe_sound
from .sounds import SAMPLE_RATE, Sound, count_samples, read_sound
from .survey import ImageInfo, Kind, MediaFile, media_rows, media_table, outside_root, probe_all, probe_each

__all__ = [
    "MAX_IMAGE_PIXELS",
    "SAMPLE_RATE",
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
    "Sound",
    "SoundInfo",
    "check_segment",
    "check_sound",
    "count_samples",
    "fetched",
    "file_stamp",
    "fit_pixels",
    "frame_times",
    "frames_key",
    "frames_shown",
    "frames_within",
    "guarded",
    "image_size",
    "keep_picture",
    "media_rows",
    "media_table",
    "notes_on_sound",
    "open_video",
    "outside_root",
    "packet_index",
    "picture_directory",
    "piece_stamps",
    "probe",
    "probe_all",
    "probe_each",
    "probe_guarded",
    "probe_sound",
    "read_frames",
    "read_image",
    "read_media_piece",
    "read_sound",
    "run_guarded",
    "shown_times",
    "square_pixels",
    "target_size",
    "upright_rgb",
]
