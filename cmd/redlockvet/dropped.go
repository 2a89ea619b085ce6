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
by itself. Where a lease is taken without a look at the error, the work goes on without the lock.`,
	Requires: inspected,
	Run:      runDroppedError,
}

func runDroppedError(pass *analysis.Pass) (any, error) {
	for n := range pass.ResultOf[inspect.Analyzer].(*inspector.Inspector).PreorderSeq((*ast.ExprStmt)(nil), (*ast.DeferStmt)(nil), (*ast.GoStmt)(nil), (*ast.AssignStmt)(nil)) {
		var call *ast.CallExpr
		switch n := n.(type) {
		case *ast.ExprStmt:
			call, _ = ast.Unparen(n.X).(*ast.CallExpr)
		case *ast.DeferStmt:
			call = n.Call
		case *ast.GoStmt:
			call = n.Call
		case *ast.AssignStmt:
			leaseAlone(pass, n)
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

// leaseAlone reports an assignment of a lease with _ for the error.
func leaseAlone(pass *analysis.Pass, n *ast.AssignStmt) {
	if len(n.Lhs) != 2 || len(n.Rhs) != 1 || !isBlank(n.Lhs[1]) || isBlank(n.Lhs[0]) || !isLease(pass.TypesInfo.TypeOf(n.Lhs[0])) {
		return
	}
	call, ok := ast.Unparen(n.Rhs[0]).(*ast.CallExpr)
	if !ok || inTest(pass, call) {
		return
	}
	if f, _ := calleeOf(pass.TypesInfo, call); f != nil && returnsError(f) {
		pass.ReportRangef(call, "the error of %s is dropped: with an error there is no lease, and the work goes on without the lock", f.Name())
	}
}

func isBlank(e ast.Expr) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == "_"
}

func returnsError(f *types.Func) bool {
	results := f.Signature().Results()
	return results.Len() > 0 && types.Identical(results.At(results.Len()-1).Type(), types.Universe.Lookup("error").Type())
}
