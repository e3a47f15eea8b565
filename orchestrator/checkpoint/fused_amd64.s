#include "textflag.h"

// Both add up, for each of n numbers, what several files have there by the files' weights: a number is multiplied, rounded
// and added in registers, in the files' order, to the same sums as one file after the other makes. n is a multiple of 32,
// above 0.

// FIRST begins with the first file, NEXT goes on to the next: its slice of bytes and its weight.
#define FIRST \
	MOVQ R8, R12   \
	MOVQ R9, R13   \
	MOVQ R11, R10  \
	NEXT

#define NEXT \
	MOVQ         (R12), SI \
	ADDQ         DX, SI    \
	VBROADCASTSD (R13), Y0 \
	ADDQ         $24, R12  \
	ADDQ         $8, R13

#define STORE \
	VMOVUPD Y1, (DI)    \
	VMOVUPD Y2, 32(DI)  \
	VMOVUPD Y3, 64(DI)  \
	VMOVUPD Y4, 96(DI)  \
	VMOVUPD Y5, 128(DI) \
	VMOVUPD Y6, 160(DI) \
	VMOVUPD Y7, 192(DI) \
	VMOVUPD Y8, 224(DI) \
	ADDQ    $256, DI

#define BEGIN \
	MOVQ sum+0(FP), DI     \
	MOVQ raw+8(FP), R8     \
	MOVQ weights+16(FP), R9 \
	MOVQ files+24(FP), R11 \
	MOVQ n+32(FP), CX      \
	XORQ DX, DX // how far it is in all files

// SET4 sets a register to four numbers of float32 times the weight, ADD4 adds them to it.
#define SET4(at, to) \
	VCVTPS2PD at(SI), to \
	VMULPD    Y0, to, to

#define ADD4(at, by, to) \
	VCVTPS2PD at(SI), by \
	VMULPD    Y0, by, by \
	VADDPD    by, to, to

// func fuseF32AVX2(sum *float64, raw *[]byte, weights *float64, files, n int)
TEXT ·fuseF32AVX2(SB), NOSPLIT, $0-40
	BEGIN

next:
	FIRST
	PREFETCHT0 1024(SI)
	PREFETCHT0 1088(SI)
	SET4(0, Y1)
	SET4(16, Y2)
	SET4(32, Y3)
	SET4(48, Y4)
	SET4(64, Y5)
	SET4(80, Y6)
	SET4(96, Y7)
	SET4(112, Y8)
	DECQ R10
	JZ   store

add:
	NEXT
	PREFETCHT0 1024(SI)
	PREFETCHT0 1088(SI)
	ADD4(0, Y9, Y1)
	ADD4(16, Y10, Y2)
	ADD4(32, Y11, Y3)
	ADD4(48, Y12, Y4)
	ADD4(64, Y9, Y5)
	ADD4(80, Y10, Y6)
	ADD4(96, Y11, Y7)
	ADD4(112, Y12, Y8)
	DECQ R10
	JNZ  add

store:
	STORE
	ADDQ $128, DX
	SUBQ $32, CX
	JNZ  next
	VZEROUPPER
	RET

// WIDE8 makes eight numbers of BF16 numbers of float32 in by, of which the upper four are in upper too.
#define WIDE8(at, by, upper) \
	VPMOVZXWD    at(SI), by    \
	VPSLLD       $16, by, by   \
	VEXTRACTI128 $1, by, upper

#define SET8(at, lower, lowerY, upper, to, to2) \
	WIDE8(at, lowerY, upper) \
	VCVTPS2PD lower, to      \
	VCVTPS2PD upper, to2     \
	VMULPD    Y0, to, to     \
	VMULPD    Y0, to2, to2

#define ADD8(at, lower, lowerY, upper, upperY, to, to2) \
	WIDE8(at, lowerY, upper)     \
	VCVTPS2PD lower, lowerY      \
	VCVTPS2PD upper, upperY      \
	VMULPD    Y0, lowerY, lowerY \
	VMULPD    Y0, upperY, upperY \
	VADDPD    lowerY, to, to     \
	VADDPD    upperY, to2, to2

// func fuseBF16AVX2(sum *float64, raw *[]byte, weights *float64, files, n int)
TEXT ·fuseBF16AVX2(SB), NOSPLIT, $0-40
	BEGIN

next:
	FIRST
	PREFETCHT0 1024(SI)
	SET8(0, X9, Y9, X10, Y1, Y2)
	SET8(16, X11, Y11, X12, Y3, Y4)
	SET8(32, X9, Y9, X10, Y5, Y6)
	SET8(48, X11, Y11, X12, Y7, Y8)
	DECQ R10
	JZ   store

add:
	NEXT
	PREFETCHT0 1024(SI)
	ADD8(0, X9, Y9, X10, Y10, Y1, Y2)
	ADD8(16, X11, Y11, X12, Y12, Y3, Y4)
	ADD8(32, X9, Y9, X10, Y10, Y5, Y6)
	ADD8(48, X11, Y11, X12, Y12, Y7, Y8)
	DECQ R10
	JNZ  add

store:
	STORE
	ADDQ $64, DX
	SUBQ $32, CX
	JNZ  next
	VZEROUPPER
	RET
