#include "textflag.h"

// All of these multiply each of n numbers of raw by weight, eight at a time, and either set sum to the products or add them to
// it; n is a multiple of 8, above 0. They multiply, round and add, as Go does, rather than fuse both: so the sums are the same
// on every machine.

// BEGIN loads what all of them are given.
#define BEGIN \
	MOVQ         sum+0(FP), DI \
	MOVQ         raw+8(FP), SI \
	MOVQ         n+16(FP), CX  \
	VBROADCASTSD weight+24(FP), Y0

// PLUS adds sum to the eight numbers in Y1 and Y2.
#define PLUS \
	VADDPD (DI), Y1, Y1 \
	VADDPD 32(DI), Y2, Y2

// TIMES multiplies the eight numbers in Y1 and Y2 by the weight.
#define TIMES \
	VMULPD Y0, Y1, Y1 \
	VMULPD Y0, Y2, Y2

// NEXT stores the eight numbers in Y1 and Y2 in sum, and goes on to the next eight, which are so many bytes of raw further.
#define NEXT(bytes, next) \
	VMOVUPD    Y1, (DI)   \
	VMOVUPD    Y2, 32(DI) \
	ADDQ       bytes, SI  \
	ADDQ       $64, DI    \
	SUBQ       $8, CX     \
	JNZ        next       \
	VZEROUPPER            \
	RET

// F32, BF16 and F16 load eight numbers of their type into Y1 and Y2.
#define F32 \
	VCVTPS2PD (SI), Y1 \
	VCVTPS2PD 16(SI), Y2

#define BF16 \
	VPMOVZXWD    (SI), Y1   \
	VPSLLD       $16, Y1, Y1 \
	VEXTRACTI128 $1, Y1, X2 \
	VCVTPS2PD    X1, Y1     \
	VCVTPS2PD    X2, Y2

#define F16 \
	VCVTPH2PS    (SI), Y1   \
	VEXTRACTF128 $1, Y1, X2 \
	VCVTPS2PD    X1, Y1     \
	VCVTPS2PD    X2, Y2

// func setF32AVX2(sum *float64, raw *byte, n int, weight float64)
TEXT ·setF32AVX2(SB), NOSPLIT, $0-32
	BEGIN

loop:
	F32
	TIMES
	NEXT($32, loop)

// func addF32AVX2(sum *float64, raw *byte, n int, weight float64)
TEXT ·addF32AVX2(SB), NOSPLIT, $0-32
	BEGIN

loop:
	F32
	TIMES
	PLUS
	NEXT($32, loop)

// func setBF16AVX2(sum *float64, raw *byte, n int, weight float64)
TEXT ·setBF16AVX2(SB), NOSPLIT, $0-32
	BEGIN

loop:
	BF16
	TIMES
	NEXT($16, loop)

// func addBF16AVX2(sum *float64, raw *byte, n int, weight float64)
TEXT ·addBF16AVX2(SB), NOSPLIT, $0-32
	BEGIN

loop:
	BF16
	TIMES
	PLUS
	NEXT($16, loop)

// func setF16AVX2(sum *float64, raw *byte, n int, weight float64)
TEXT ·setF16AVX2(SB), NOSPLIT, $0-32
	BEGIN

loop:
	F16
	TIMES
	NEXT($16, loop)

// func addF16AVX2(sum *float64, raw *byte, n int, weight float64)
TEXT ·addF16AVX2(SB), NOSPLIT, $0-32
	BEGIN

loop:
	F16
	TIMES
	PLUS
	NEXT($16, loop)

// func putF32AVX2(raw *byte, sum *float64, n int) (finite bool)
//
// putF32AVX2 rounds n numbers to float32, eight at a time, and says whether all of them are finite: only such a number less
// itself is 0.
TEXT ·putF32AVX2(SB), NOSPLIT, $0-25
	MOVQ  raw+0(FP), DI
	MOVQ  sum+8(FP), SI
	MOVQ  n+16(FP), CX
	VPXOR Y0, Y0, Y0

loop:
	VMOVUPD    (SI), Y1
	VMOVUPD    32(SI), Y2
	VCVTPD2PSY Y1, X3
	VCVTPD2PSY Y2, X4
	VMOVUPS    X3, (DI)
	VMOVUPS    X4, 16(DI)
	VSUBPD     Y1, Y1, Y1
	VSUBPD     Y2, Y2, Y2
	VORPD      Y1, Y0, Y0
	VORPD      Y2, Y0, Y0
	ADDQ       $64, SI
	ADDQ       $32, DI
	SUBQ       $8, CX
	JNZ        loop
	VPTEST     Y0, Y0
	SETEQ      finite+24(FP)
	VZEROUPPER
	RET

// The low 16 bits of both quadwords of each half, in its lowest four bytes.
DATA words<>+0(SB)/8, $0xffffffff09080100
DATA words<>+8(SB)/8, $0xffffffffffffffff
GLOBL words<>(SB), RODATA|NOPTR, $16

// 2^52, to which a float64 between 0 and 2^52 can be added to be rounded to a whole number, to the nearest even.
DATA whole<>+0(SB)/8, $0x4330000000000000
GLOBL whole<>(SB), RODATA|NOPTR, $8

// func putAVX2(raw *byte, sum *float64, n int, shift, half, low, span, one uint64, small float64) int
//
// putAVX2 rounds numbers to a type of 16 bits as layout.encode does, four at a time, and stops before the four of which
// one is beyond the largest finite number. It returns how many it wrote. Below the normal numbers lie multiples of the
// smallest: there it takes the number times small, which is one by the smallest.
TEXT ·putAVX2(SB), NOSPLIT, $0-80
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
	VBROADCASTSD   small+64(FP), Y6
	VBROADCASTSD   whole<>(SB), Y7

put:
	VMOVUPD      (SI), Y1
	VPAND        Y13, Y1, Y2
	VMULPD       Y6, Y2, Y5
	VADDPD       Y7, Y5, Y5 // the multiple of the smallest, in its low bits
	VPSRLQ       X8, Y1, Y3
	VPAND        Y14, Y3, Y3
	VPADDQ       Y9, Y2, Y2
	VPADDQ       Y3, Y2, Y2
	VPSRLQ       X8, Y2, Y2
	VPSUBQ       Y10, Y2, Y2
	VPCMPGTQ     Y11, Y2, Y4 // beyond the range
	VMOVMSKPD    Y4, AX
	TESTL        AX, AX
	JNZ          done
	VPADDQ       Y12, Y2, Y4
	VBLENDVPD    Y2, Y5, Y4, Y2 // the multiple where this is negative: below the range
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
	MOVQ R8, ret+72(FP)
	VZEROUPPER
	RET
