package main

import (
	"go/ast"
	"go/types"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/inspect"
	"golang.org/x/tools/go/ast/inspector"
)

var droppedError = &analysis.Analyzer{
	Name: "droppederror",
	Doc: `report an error of Unlock, Do or package fence that is not read

ErrLost of Unlock and Do means that another holder may have worked at the same time, and ErrFenced that the store
has refused a write. An assignment to _ is no mistake: it shows that the error is known. Package jobs logs its errors
by itself.`,
	Requires: inspected,
	Run:      runDroppedError,
}

func runDroppedError(pass *analysis.Pass) (any, error) {
	for n := range pass.ResultOf[inspect.Analyzer].(*inspector.Inspector).PreorderSeq((*ast.ExprStmt)(nil), (*ast.DeferStmt)(nil), (*ast.GoStmt)(nil)) {
		var call *ast.CallExpr
		switch n := n.(type) {
		case *ast.ExprStmt:
			call, _ = ast.Unparen(n.X).(*ast.CallExpr)
		case *ast.DeferStmt:
			call = n.Call
		case *ast.GoStmt:
			call = n.Call
		}
		if call == nil || inTest(pass, call) {
			continue
		}
		f, pkg := calleeOf(pass.TypesInfo, call)
		if f == nil || pkg == "jobs" || !returnsError(f) {
			continue
		}
		if lease, name := leaseMethod(pass.TypesInfo, call); lease != nil && name == "Unlock" || f.Name() == "Do" {
			pass.ReportRangef(call, "the error of %s is dropped: ErrLost means that another holder may have worked at the same time", f.Name())
		} else if pkg == "fence" {
			pass.ReportRangef(call, "the error of %s is dropped: ErrFenced means that the store was not written", f.Name())
		}
	}
	return nil, nil
}

func returnsError(f *types.Func) bool {
	results := f.Signature().Results()
	return results.Len() > 0 && types.Identical(results.At(results.Len()-1).Type(), types.Universe.Lookup("error").Type())
}
