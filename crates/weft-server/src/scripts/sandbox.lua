-- Builds what scripts see. Runs once for each Lua state, and gets the host's functions.
--
-- Nothing that a script can reach may keep a change for the next call. So the libraries are userdata, which only reads
-- pass through, and the table of globals is out of reach: there is no `getfenv`, and `_G` is such a userdata, too.
local host = ...

local error, type, rawget, next, select = error, type, rawget, next, select
local pcall_raw, xpcall_raw, resume_raw = pcall, xpcall, coroutine.resume

local function readonly()
    error("Attempt to modify a readonly table", 2)
end

local function protect(content)
    local proxy = newproxy(true)
    local meta = getmetatable(proxy)
    meta.__index, meta.__newindex, meta.__metatable = content, readonly, false
    return proxy
end

-- The globals of scripts. The host sets KEYS and ARGV here.
local visible = { _VERSION = _VERSION }
for _, name in next, {
    "assert", "error", "getmetatable", "ipairs", "next", "pairs", "rawequal", "rawget", "rawset", "select", "setmetatable",
    "tonumber", "tostring", "type", "unpack",
} do
    visible[name] = _G[name]
end
setmetatable(visible, {
    __index = function(_, name)
        error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
    end,
})

-- Catching errors. `host.caught` raises those that end the call again: a conflict, and a limit. It makes text of the others.
local function outcome(ok, ...)
    if ok then
        return true, ...
    end
    return false, host.caught((...))
end

function visible.pcall(...)
    return outcome(pcall_raw(...))
end

function visible.xpcall(body, handler)
    return outcome(xpcall_raw(body, function(problem)
        return handler(host.caught(problem))
    end))
end

local coroutines = {}
for _, name in next, { "create", "running", "status", "wrap", "yield" } do
    coroutines[name] = coroutine[name]
end
function coroutines.resume(...)
    return outcome(resume_raw(...))
end

-- Code that is loaded at run time is text: bytecode could break the memory of the server.
function visible.loadstring(code, name)
    return host.load(code, name)
end
function visible.load(reader, name)
    local pieces = {}
    for piece in reader do
        if piece == "" then
            break
        end
        pieces[#pieces + 1] = piece
    end
    return host.load(table.concat(pieces), name)
end

-- The memory of a state says what ran before, so scripts do not see it.
function visible.collectgarbage()
    return 0
end
visible.gcinfo = visible.collectgarbage

local math = math
math.random, math.randomseed = host.random, host.randomseed
local string = string
string.dump = nil
getmetatable("").__metatable = false

local libraries = {
    bit = host.bit, cjson = host.cjson, cmsgpack = host.cmsgpack, coroutine = coroutines, math = math,
    os = { clock = host.clock }, redis = host.redis, string = string, struct = host.struct, table = table,
}
for name, library in next, libraries do
    visible[name] = protect(library)
end
visible._G = protect(visible)

local globals = setmetatable({}, { __index = visible, __newindex = readonly, __metatable = false })

-- Runs the body of a script, or a function of a library with its keys and arguments. Returns whether it has ended well,
-- and its result or its error.
local function run(body, keys, arguments)
    if keys == nil then
        return xpcall_raw(body, host.described)
    end
    return xpcall_raw(function()
        return body(keys, arguments)
    end, host.described)
end

return globals, visible, run
