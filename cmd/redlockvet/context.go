package main

import (
	"go/ast"
	"go/types"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/inspect"
	"golang.org/x/tools/go/ast/inspector"
	"golang.org/x/tools/go/types/typeutil"
)

var outerContext = &analysis.Analyzer{
	Name: "outercontext",
	Doc: `report work under a lease with a context from outside

The function of Do, of an election or of a job gets a context, which ends with the lease. A call with a context
from outside goes on after the lease has been lost, beside the next holder.`,
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
			v := variable(info, arg)
			if v == nil || !isContext(v.Type()) || given[v] || lit.Pos() <= v.Pos() && v.Pos() < lit.End() || outlives(pass, v) {
				continue
			}
			reported[call] = true
			pass.ReportRangef(arg, "%s is from outside of the function under the lease: the call goes on after the lease is lost; take the context of the function", v.Name())
		}
		return true
	})
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
	return obj.Pkg().Path() == "log/slog" || strings.HasSuffix(obj.Name(), "FromContext")
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

var withoutCancel = &analysis.Analyzer{
	Name: "withoutcancel",
	Doc: `report context.WithoutCancel of the context of a lease

The context of a lease ends when the lease does, and the work must stop then. What is done with the result of
context.WithoutCancel goes on. A deferred call and a call of the lease itself may have it, to clean up.`,
	Requires: inspected,
	Run:      runWithoutCancel,
}

func runWithoutCancel(pass *analysis.Pass) (any, error) {
	info := pass.TypesInfo
	in := pass.ResultOf[inspect.Analyzer].(*inspector.Inspector)
	times := make(map[*types.Var]int) // how often a variable is given a value
	of := make(map[*types.Var]bool)   // variables that are the context of a lease
	for n := range in.PreorderSeq((*ast.AssignStmt)(nil), (*ast.ValueSpec)(nil), (*ast.RangeStmt)(nil)) {
		assigned(info, n, func(v *types.Var, from ast.Expr) {
			times[v]++
			of[v] = from != nil && isLeaseContext(info, from)
		})
	}
	in.WithStack([]ast.Node{(*ast.CallExpr)(nil)}, func(n ast.Node, push bool, stack []ast.Node) bool {
		call := n.(*ast.CallExpr)
		if !push || !isFunc(info, call, "context", "WithoutCancel") || len(call.Args) != 1 || inTest(pass, call) {
			return true
		}
		v := variable(info, call.Args[0])
		if !isLeaseContext(info, call.Args[0]) && (v == nil || !of[v] || times[v] > 1) {
			return true
		}
		for i := len(stack) - 2; i >= 0; i-- {
			switch outer := stack[i].(type) {
			case *ast.DeferStmt:
				return true
			case *ast.CallExpr:
				if lease, _ := leaseMethod(info, outer); lease != nil {
					return true
				}
			}
		}
		pass.ReportRangef(call, "the context no longer ends with the lease: what it is for goes on beside the next holder")
		return true
	})
	return nil, nil
}

// isLeaseContext reports whether an expression is lease.Context().
func isLeaseContext(info *types.Info, e ast.Expr) bool {
	call, ok := ast.Unparen(e).(*ast.CallExpr)
	if !ok {
		return false
	}
	_, name := leaseMethod(info, call)
	return name == "Context"
}
