package main

import (
	"go/ast"
	"go/token"
	"go/types"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/inspect"
	"golang.org/x/tools/go/ast/inspector"
	"golang.org/x/tools/go/types/typeutil"
)

var outerContext = &analysis.Analyzer{
	Name: "outercontext",
	Doc: `report work under a lease with a context that does not end with it

The function of Do, of an election or of a job gets a context, which ends with the lease. A call with a context
from outside, also r.Context(), goes on after the lease has been lost, beside the next holder. So does one in a function
that has taken a lease by Lock, and does not ask it for anything: neither Context, Within, Err, Fence nor the like.`,
	Requires: inspected,
	Run:      runOuterContext,
}

func runOuterContext(pass *analysis.Pass) (any, error) {
	// A call inside several such functions is reported once.
	reported := make(map[*ast.CallExpr]bool)
	for n := range pass.ResultOf[inspect.Analyzer].(*inspector.Inspector).PreorderSeq((*ast.CallExpr)(nil)) {
		if lit := underLease(pass.TypesInfo, n.(*ast.CallExpr)); lit != nil && !inTest(pass, lit) {
			checkUnderLease(pass, lit, reported)
		}
	}
	for n := range pass.ResultOf[inspect.Analyzer].(*inspector.Inspector).PreorderSeq((*ast.FuncDecl)(nil), (*ast.FuncLit)(nil)) {
		if body := bodyOf(n); body != nil && !inTest(pass, n) {
			checkBesideLease(pass, n, body)
		}
	}
	return nil, nil
}

func checkUnderLease(pass *analysis.Pass, lit *ast.FuncLit, reported map[*ast.CallExpr]bool) {
	info := pass.TypesInfo
	given := make(map[*types.Var]bool) // contexts of outside that the function itself sets
	ast.Inspect(lit.Body, func(n ast.Node) bool {
		assigned(info, n, func(v *types.Var, _ ast.Expr) { given[v] = true })
		return true
	})
	ast.Inspect(lit.Body, func(n ast.Node) bool {
		if _, ok := n.(*ast.GoStmt); ok {
			return false // may be meant to outlive the lease
		}
		call, ok := n.(*ast.CallExpr)
		if !ok || reported[call] || mayTakeOuter(info, call) {
			return true
		}
		for _, arg := range call.Args {
			v := contextOf(info, arg)
			if v == nil || given[v] || lit.Pos() <= v.Pos() && v.Pos() < lit.End() || outlives(pass, v) {
				continue
			}
			reported[call] = true
			pass.ReportRangef(arg, "%s is from outside of the function under the lease: the call goes on after the lease is lost; take the context of the function", types.ExprString(arg))
		}
		return true
	})
}

// contextOf returns the variable from which a context comes: ctx itself, s of s.ctx, r of r.Context(); nil of others, and of
// the context of a lease.
func contextOf(info *types.Info, e ast.Expr) *types.Var {
	if t := info.TypeOf(e); t == nil || !isContext(t) {
		return nil
	}
	if call, ok := ast.Unparen(e).(*ast.CallExpr); ok {
		if sel, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr); ok && sel.Sel.Name == "Context" && len(call.Args) == 0 && !isLease(info.TypeOf(sel.X)) {
			return rootOf(info, sel.X)
		}
		return nil
	}
	return rootOf(info, e)
}

// rootOf returns v for v, v.field and v.field.field.
func rootOf(info *types.Info, e ast.Expr) *types.Var {
	for {
		sel, ok := ast.Unparen(e).(*ast.SelectorExpr)
		if !ok {
			return variable(info, e)
		}
		e = sel.X
	}
}

// mayTakeOuter reports whether a call under a lease may take a context from outside: the calls that
// end or renew the lease do, and those that only read a context.
func mayTakeOuter(info *types.Info, call *ast.CallExpr) bool {
	if lease, _ := leaseMethod(info, call); lease != nil {
		return true
	}
	if isFunc(info, call, "context", "WithoutCancel", "AfterFunc", "Cause") {
		return true
	}
	obj := typeutil.Callee(info, call)
	if obj == nil || obj.Pkg() == nil {
		return false
	}
	path := obj.Pkg().Path()
	return path == "log/slog" || strings.HasPrefix(path, "go.opentelemetry.io/") || strings.HasSuffix(obj.Name(), "FromContext")
}

// outlives reports whether a variable was made by context.WithoutCancel: it is for cleaning up.
func outlives(pass *analysis.Pass, v *types.Var) (found bool) {
	for n := range pass.ResultOf[inspect.Analyzer].(*inspector.Inspector).PreorderSeq((*ast.AssignStmt)(nil), (*ast.ValueSpec)(nil)) {
		assigned(pass.TypesInfo, n, func(to *types.Var, from ast.Expr) {
			if from == nil || to != v {
				return
			}
			ast.Inspect(from, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				found = found || ok && isFunc(pass.TypesInfo, call, "context", "WithoutCancel")
				return !found
			})
		})
	}
	return found
}

// checkBesideLease reports the first call with a context while the function holds a lease that it does not ask for
// anything, and passes to no other function.
func checkBesideLease(pass *analysis.Pass, fn ast.Node, body *ast.BlockStmt) {
	info := pass.TypesInfo
	var lease, failed *types.Var
	var taken ast.Node
	asked := false
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			if call, ok := n.Rhs[0].(*ast.CallExpr); ok && len(n.Lhs) == 2 && takesLease(info, call) {
				asked = asked || lease != nil // one lease is enough to look after
				lease, failed, taken = variable(info, n.Lhs[0]), variable(info, n.Lhs[1]), n
				return false
			}
		case *ast.CallExpr:
			if of, name := leaseMethod(info, n); of != nil && name == "Unlock" && variable(info, of) == lease {
				return false
			}
		case *ast.Ident:
			asked = asked || lease != nil && info.Uses[n] == lease
		}
		return true
	})
	if asked || lease == nil || failed == nil || lease.Pos() < fn.Pos() {
		return
	}
	over := false
	ast.Inspect(body, func(n ast.Node) bool {
		if n == nil || over || n.End() <= taken.Pos() || n == taken {
			return false
		}
		switch n := n.(type) {
		case *ast.GoStmt, *ast.DeferStmt, *ast.FuncLit:
			return false
		case *ast.IfStmt:
			if eq, ok := n.Cond.(*ast.BinaryExpr); mentions(info, n.Cond, failed) && !(ok && eq.Op == token.EQL && info.Types[eq.Y].IsNil()) {
				return false // without a lease
			}
		case *ast.CaseClause:
			for _, e := range n.List {
				if mentions(info, e, failed) {
					return false
				}
			}
		case *ast.CallExpr:
			if of, name := leaseMethod(info, n); of != nil && name == "Unlock" {
				over = true
				return false
			}
			if n.Pos() < taken.End() || mayTakeOuter(info, n) {
				return true
			}
			for _, arg := range n.Args {
				if v := contextOf(info, arg); v != nil && !outlives(pass, v) {
					over = true
					pass.ReportRangef(arg, "%s does not end with %s: the call goes on after the lease is lost; take %[2]s.Context()", types.ExprString(arg), lease.Name())
					return false
				}
			}
		}
		return true
	})
}

func bodyOf(fn ast.Node) *ast.BlockStmt {
	if lit, ok := fn.(*ast.FuncLit); ok {
		return lit.Body
	}
	return fn.(*ast.FuncDecl).Body
}
