//go:build !purego

#include "textflag.h"

// func text(b []byte, i int) (next, high int)
//
// SSE2 is part of amd64, so the processor need not be checked.
TEXT ·text(SB), NOSPLIT, $0-48
	MOVQ b_base+0(FP), SI
	MOVQ b_len+8(FP), CX
	MOVQ i+24(FP), AX
	MOVQ CX, BX           // BX: the first byte that is not ASCII; none so far
	SUBQ $16, CX          // CX: the last index with 16 bytes behind it
	MOVQ $0x2222222222222222, DX
	MOVQ DX, X1
	PUNPCKLQDQ X1, X1     // X1: quotes
	MOVQ $0x5C5C5C5C5C5C5C5C, DX
	MOVQ DX, X2
	PUNPCKLQDQ X2, X2     // X2: backslashes
	MOVQ $0x1F1F1F1F1F1F1F1F, DX
	MOVQ DX, X3
	PUNPCKLQDQ X3, X3     // X3: the last of the control characters

next16:
	CMPQ AX, CX
	JGT  done
	MOVOU (SI)(AX*1), X0
	MOVO X0, X4
	PMINUB X3, X4
	PCMPEQB X0, X4        // control characters are the lesser of the two
	MOVO X0, X5
	PCMPEQB X1, X5
	POR  X5, X4
	MOVO X0, X6
	PCMPEQB X2, X6
	POR  X6, X4
	PMOVMSKB X4, DX       // DX: what ends the text, a bit for each byte
	PMOVMSKB X0, DI       // DI: what is not ASCII
	TESTL DX, DX
	JNZ  hit
	TESTL DI, DI
	JNZ  foreign
	ADDQ $16, AX
	JMP  next16

foreign:
	BSFL DI, DI
	ADDQ AX, DI
	CMPQ DI, BX
	CMOVQLT DI, BX
	ADDQ $16, AX
	JMP  next16

hit:
	BSFL DX, DX
	TESTL DI, DI
	JZ   end
	BSFL DI, DI
	ADDQ AX, DI
	CMPQ DI, BX
	CMOVQLT DI, BX

end:
	ADDQ DX, AX

done:
	MOVQ AX, next+32(FP)
	MOVQ BX, high+40(FP)
	RET
