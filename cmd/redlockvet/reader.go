package main

import (
	"go/ast"
	"go/constant"
	"go/types"
	"regexp"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/inspect"
	"golang.org/x/tools/go/ast/inspector"
)

var readerWrite = &analysis.Analyzer{
	Name: "readerwrite",
	Doc: `report a write to a store with the lease of a reader

Readers share a resource: a lease with redlock.Shared keeps no other reader out. So fence.Set refuses its token, and
the function of fence.Tx may only read.`,
	Requires: inspected,
	Run:      runReaderWrite,
}

func runReaderWrite(pass *analysis.Pass) (any, error) {
	info := pass.TypesInfo
	in := pass.ResultOf[inspect.Analyzer].(*inspector.Inspector)
	readers := make(map[*types.Var]bool)
	times := make(map[*types.Var]int)
	for n := range in.PreorderSeq((*ast.AssignStmt)(nil), (*ast.ValueSpec)(nil), (*ast.CallExpr)(nil)) {
		assigned(info, n, func(v *types.Var, from ast.Expr) {
			if from == nil || !isLease(v.Type()) {
				return
			}
			times[v]++
			if call, ok := ast.Unparen(from).(*ast.CallExpr); ok && isShared(info, call) {
				readers[v] = true
			}
		})
		if call, ok := n.(*ast.CallExpr); ok && isShared(info, call) {
			if lit := underLease(info, call); lit != nil {
				readers[info.TypeOf(lit).(*types.Signature).Params().At(1)] = true
			}
		}
	}
	reader := func(args []ast.Expr, i int) bool {
		if i >= len(args) {
			return false
		}
		v := variable(info, args[i])
		return v != nil && readers[v] && times[v] <= 1
	}
	for n := range in.PreorderSeq((*ast.CallExpr)(nil)) {
		call := n.(*ast.CallExpr)
		f, pkg := calleeOf(info, call)
		switch {
		case pkg != "fence" || inTest(pass, call):
		case f.Name() == "Set" && reader(call.Args, 4):
			pass.ReportRangef(call, "a reader's lease does not keep other readers out: fence.Set refuses it")
		case f.Name() == "Tx" && reader(call.Args, 3) && len(call.Args) == 5:
			ast.Inspect(call.Args[4], func(n ast.Node) bool {
				if exec, ok := n.(*ast.CallExpr); ok && writes(info, exec) {
					pass.ReportRangef(exec, "a write in a transaction of a reader's lease: other readers may write at the same time")
				}
				return true
			})
		}
	}
	return nil, nil
}

// isShared reports whether a call of the library has the option redlock.Shared.
func isShared(info *types.Info, call *ast.CallExpr) bool {
	if f, _ := calleeOf(info, call); f == nil {
		return false
	}
	for _, arg := range call.Args {
		if option, ok := ast.Unparen(arg).(*ast.CallExpr); ok && isFunc(info, option, module, "Shared") {
			return true
		}
	}
	return false
}

var writing = regexp.MustCompile(`(?i)^\s*(INSERT|UPDATE|DELETE|REPLACE|MERGE|TRUNCATE)\b`)

// writes reports whether a call is one of database/sql with a statement that writes.
func writes(info *types.Info, call *ast.CallExpr) bool {
	if !isFunc(info, call, "database/sql", "Exec", "ExecContext", "Query", "QueryContext", "QueryRow", "QueryRowContext") {
		return false
	}
	for _, arg := range call.Args[:min(2, len(call.Args))] {
		if value := info.Types[arg].Value; value != nil && value.Kind() == constant.String {
			return writing.MatchString(constant.StringVal(value))
		}
	}
	return false
}
