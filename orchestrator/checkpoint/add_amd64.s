#include "textflag.h"

// All three add weight times each of n numbers of raw to sum, eight at a time; n is a multiple of 8, above 0. They multiply,
// round and add, as Go does, rather than fuse both: so the sums are the same on every machine.

// ADD adds weight times the eight numbers in Y1 and Y2 to sum, and goes on to the next eight, which are so many bytes of raw
// further.
#define ADD(bytes, next) \
	VMULPD  Y0, Y1, Y1   \
	VMULPD  Y0, Y2, Y2   \
	VADDPD  (DI), Y1, Y1 \
	VADDPD  32(DI), Y2, Y2 \
	VMOVUPD Y1, (DI)     \
	VMOVUPD Y2, 32(DI)   \
	ADDQ    bytes, SI    \
	ADDQ    $64, DI      \
	SUBQ    $8, CX       \
	JNZ     next         \
	VZEROUPPER           \
	RET

// func addF32AVX2(sum *float64, raw *byte, n int, weight float64)
TEXT ·addF32AVX2(SB), NOSPLIT, $0-32
	MOVQ         sum+0(FP), DI
	MOVQ         raw+8(FP), SI
	MOVQ         n+16(FP), CX
	VBROADCASTSD weight+24(FP), Y0

f32:
	VCVTPS2PD (SI), Y1
	VCVTPS2PD 16(SI), Y2
	ADD($32, f32)

// func addBF16AVX2(sum *float64, raw *byte, n int, weight float64)
TEXT ·addBF16AVX2(SB), NOSPLIT, $0-32
	MOVQ         sum+0(FP), DI
	MOVQ         raw+8(FP), SI
	MOVQ         n+16(FP), CX
	VBROADCASTSD weight+24(FP), Y0

bf16:
	VPMOVZXWD    (SI), Y1
	VPSLLD       $16, Y1, Y1
	VEXTRACTI128 $1, Y1, X2
	VCVTPS2PD    X1, Y1
	VCVTPS2PD    X2, Y2
	ADD($16, bf16)

// func addF16AVX2(sum *float64, raw *byte, n int, weight float64)
TEXT ·addF16AVX2(SB), NOSPLIT, $0-32
	MOVQ         sum+0(FP), DI
	MOVQ         raw+8(FP), SI
	MOVQ         n+16(FP), CX
	VBROADCASTSD weight+24(FP), Y0

f16:
	VCVTPH2PS    (SI), Y1
	VEXTRACTF128 $1, Y1, X2
	VCVTPS2PD    X1, Y1
	VCVTPS2PD    X2, Y2
	ADD($16, f16)

// The low 16 bits of both quadwords of each half, in its lowest four bytes.
DATA words<>+0(SB)/8, $0xffffffff09080100
DATA words<>+8(SB)/8, $0xffffffffffffffff
GLOBL words<>(SB), RODATA|NOPTR, $16

// func putAVX2(raw *byte, sum *float64, n int, shift, half, low, span, one uint64) int
//
// putAVX2 rounds numbers to a type of 16 bits as layout.encode does, four at a time, and stops before the four of which
// one is not in the range of normal numbers. It returns how many it wrote.
TEXT ·putAVX2(SB), NOSPLIT, $0-72
	MOVQ           raw+0(FP), DI
	MOVQ           sum+8(FP), SI
	MOVQ           n+16(FP), CX
	MOVQ           CX, R8
	MOVQ           shift+24(FP), X8
	VPBROADCASTQ   half+32(FP), Y9
	VPBROADCASTQ   low+40(FP), Y10
	VPBROADCASTQ   span+48(FP), Y11
	VPBROADCASTQ   one+56(FP), Y12
	VPCMPEQQ       Y13, Y13, Y13
	VPSRLQ         $63, Y13, Y14             // 1
	VPSRLQ         $1, Y13, Y13              // all but the sign
	VBROADCASTI128 words<>(SB), Y15

put:
	VMOVUPD      (SI), Y1
	VPAND        Y13, Y1, Y2
	VPSRLQ       X8, Y1, Y3
	VPAND        Y14, Y3, Y3
	VPADDQ       Y9, Y2, Y2
	VPADDQ       Y3, Y2, Y2
	VPSRLQ       X8, Y2, Y2
	VPSUBQ       Y10, Y2, Y2
	VPCMPGTQ     Y11, Y2, Y4 // beyond the range
	VPOR         Y2, Y4, Y4  // or below it: negative
	VMOVMSKPD    Y4, AX
	TESTL        AX, AX
	JNZ          done
	VPADDQ       Y12, Y2, Y2
	VPSRLQ       $63, Y1, Y1
	VPSLLQ       $15, Y1, Y1
	VPOR         Y1, Y2, Y2
	VPSHUFB      Y15, Y2, Y2
	VEXTRACTI128 $1, Y2, X3
	VPUNPCKLDQ   X3, X2, X2
	VMOVQ        X2, (DI)
	ADDQ         $32, SI
	ADDQ         $8, DI
	SUBQ         $4, CX
	JNZ          put

done:
	SUBQ CX, R8
	MOVQ R8, ret+64(FP)
	VZEROUPPER
	RET
