// The types that the driver's calls for OpenGL, VDPAU and EGL take (cudaGL.h, cudaVDPAU.h, cudaEGL.h), without the
// headers of these, which a build needs for nothing else. All these calls are refused, and none looks at its arguments.
#pragma once

#include <cuda.h>

using GLuint = unsigned int;
using GLenum = unsigned int;
enum CUGLDeviceList : unsigned int {};

using VdpDevice = unsigned int;
using VdpVideoSurface = unsigned int;
using VdpOutputSurface = unsigned int;
struct VdpGetProcAddress;

using EGLint = int;
using EGLImageKHR = void*;
using EGLStreamKHR = void*;
using EGLSyncKHR = void*;
using CUeglStreamConnection = struct CUeglStreamConnection_st*;
struct CUeglFrame {
  void* planes[3];
  unsigned int rest[10];
};
