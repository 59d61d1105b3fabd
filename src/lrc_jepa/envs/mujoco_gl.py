"""Choosing how MuJoCo draws, before it is imported: it decides once, at import."""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import sys
from importlib import import_module
from types import ModuleType

from lrc_jepa.errors import BadInput

BACKENDS = ("egl", "osmesa", "glfw", "cgl", "wgl")
HELP = (
    "MuJoCo finds no OpenGL to draw with; on Debian or Ubuntu: apt-get install libosmesa6 "
    "(or, with a graphics card, libegl1 libopengl0 and its driver)"
)
EGL_PLATFORM_DEVICE = 0x313F


def _egl_works() -> bool:
    """Whether EGL is installed together with a driver that opens a display without a screen."""
    if not any(ctypes.util.find_library(name) for name in ("OpenGL", "GL")):
        return False
    try:
        egl = ctypes.CDLL("libEGL.so.1")
    except OSError:
        return False
    egl.eglGetProcAddress.restype = ctypes.c_void_p
    addresses = [egl.eglGetProcAddress(n) for n in (b"eglQueryDevicesEXT", b"eglGetPlatformDisplayEXT")]
    if not all(addresses):
        return False
    pointer = ctypes.c_void_p
    query = ctypes.CFUNCTYPE(ctypes.c_uint, ctypes.c_int, pointer, pointer)(addresses[0])
    open_display = ctypes.CFUNCTYPE(pointer, ctypes.c_uint, pointer, pointer)(addresses[1])
    egl.eglInitialize.argtypes, egl.eglTerminate.argtypes = [pointer, pointer, pointer], [pointer]
    devices, count = (pointer * 16)(), ctypes.c_int(0)
    if not query(16, devices, ctypes.byref(count)):
        return False
    for device in devices[: count.value]:
        display = open_display(EGL_PLATFORM_DEVICE, device, None)
        if display and egl.eglInitialize(display, None, None):
            egl.eglTerminate(display)
            return True
    return False


def choose_backend() -> str:
    """The backend to use: the one the user set, or the first that works."""
    chosen = os.environ.get("MUJOCO_GL", "").lower()
    if chosen:
        if chosen not in BACKENDS:
            raise BadInput(f"MUJOCO_GL is {chosen!r}, which is not one of {', '.join(BACKENDS)}")
        return chosen
    if not sys.platform.startswith("linux"):
        return "cgl" if sys.platform == "darwin" else "wgl"
    if _egl_works():
        return "egl"
    if ctypes.util.find_library("OSMesa"):
        return "osmesa"
    raise BadInput(HELP)


def load_mujoco() -> ModuleType:
    """Import mujoco, set up to draw without a screen."""
    linux, screen = sys.platform.startswith("linux"), os.environ.get("DISPLAY")
    if "mujoco" in sys.modules and linux and not screen and not os.environ.get("MUJOCO_GL"):
        # It has settled for windows on a screen, and would end the process when asked to draw.
        raise BadInput(
            "mujoco was imported too early: import lrc_jepa.envs.mujoco_gl first, or set MUJOCO_GL=egl"
        )
    if "mujoco" not in sys.modules:
        backend = choose_backend()
        if linux:
            os.environ["MUJOCO_GL"] = backend
            if backend in ("egl", "osmesa"):
                os.environ.setdefault("PYOPENGL_PLATFORM", backend)
            # Mesa's software renderer: small frames are drawn faster without helper threads.
            os.environ.setdefault("LP_NUM_THREADS", "0")
    return import_module("mujoco")
