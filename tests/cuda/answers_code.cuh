// Code for programs that print what the driver answers of it: kernels with and without limits, variables, a texture.
#pragma once

static const char* kPtx = R"(
.version 8.0
.target sm_75
.address_size 64
.visible .global .align 8 .u32 words[5];
.visible .const .align 4 .u32 constant_word;
.visible .global .texref picture;
.visible .func (.param .b32 r) helper(.param .b32 a) { .reg .b32 %r<3>; ld.param.b32 %r1, [a]; add.u32 %r2, %r1, 1; st.param.b32 [r], %r2; ret; }
.visible .entry nothing() { ret; }
.visible .entry limited(.param .u64 to, .param .u32 value, .param .align 8 .b8 more[24]) .maxntid 128, 1, 1
{ .reg .b32 %r<3>; .reg .b64 %rd<3>; ld.param.u64 %rd1, [to]; ld.param.u32 %r1, [value]; ret; }
.visible .entry fixed(.param .u64 to) .reqntid 64, 2, 1 { ret; }
.visible .entry shares(.param .u64 to) { .shared .align 4 .b8 inner[1000]; .reg .b32 %r<3>; mov.u32 %r1, inner; st.shared.u32 [%r1], %r1; ret; }
.visible .entry clustered() .explicitcluster .reqnctapercluster 2, 1, 1 { ret; }
)";

static const char* kSm90 = R"(
.version 8.0
.target sm_90
.address_size 64
.extern .shared .align 16 .b8 outer[];
.visible .global .u32 words[3];
.visible .entry nothing() { ret; }
.visible .entry clustered() .explicitcluster .reqnctapercluster 2, 1, 1 { ret; }
.visible .entry dynamic(.param .u32 at) { .reg .b32 %r<4>; ld.param.u32 %r1, [at]; mov.u32 %r2, outer; add.u32 %r2, %r2, %r1; st.shared.u32 [%r2], %r1; ret; }
)";
