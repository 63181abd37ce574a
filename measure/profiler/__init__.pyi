from .allocations import on_cpu, on_cuda
from .events import ANNOTATION, Frame, launched, step_frames
from .module_ranges import MODULE, ModuleRanges, is_compiled
from .nvtx_step import record_step
from .work_profiles import check_available, kernel_device, profile_step

__all__ = [
    "ANNOTATION",
    "Frame",
    "MODULE",
    "ModuleRanges",
    "check_available",
    "is_compiled",
    "kernel_device",
    "launched",
    "on_cpu",
    "on_cuda",
    "profile_step",
    "record_step",
    "step_frames",
]
