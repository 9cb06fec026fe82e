-- The cases of `stm` in GHC's own transactional memory, as versus/src/cases/stm does them on the other sides: the same
-- sizes, shares, keys and checks, in as many threads of GHC's as the others have tasks.
--
-- Stm CASE COUNT     does COUNT operations, after a tenth as many to warm up, and prints the nanoseconds of one:
--                    time on the clock, and CPU time of all threads
{-# LANGUAGE BangPatterns #-}
module Main (main) where

import Control.Concurrent
import Control.Concurrent.STM
import Control.Monad
import Data.Array
import Data.Bits
import Data.IORef
import Data.List (sort)
import Data.Word
import GHC.Clock (getMonotonicTimeNSec)
import System.CPUTime (getCPUTime)
import System.Environment (getArgs)
import System.Exit (die)

-- | Threads of the cases in which none waits.
tasks :: Int
tasks = 64

-- | Operations after which a thread lets others run.
turn :: Int
turn = 64

main :: IO ()
main = do
  arguments <- getArgs
  case arguments of
    ["stm/bank", count] -> measure bank (read count)
    ["stm/list", count] -> measure list (read count)
    ["stm/queue", count] -> measure queue (read count)
    ["stm/hot", count] -> measure hot (read count)
    _ -> die "Usage: Stm stm/bank|stm/list|stm/queue|stm/hot COUNT"

measure :: (Int -> IO Int) -> Int -> IO ()
measure work count = do
  _ <- work (count `div` 10)
  wall <- getMonotonicTimeNSec
  cpu <- getCPUTime
  done <- work count
  wall' <- getMonotonicTimeNSec
  cpu' <- getCPUTime
  let per x = x / fromIntegral done :: Double
  putStrLn (show (per (fromIntegral (wall' - wall))) ++ " " ++ show (per (fromIntegral (cpu' - cpu) / 1000)))

-- | Runs a thread for each number below, and returns their results.
together :: Int -> (Int -> IO a) -> IO [a]
together many work = do
  results <- forM [0 .. many - 1] $ \number -> do
    result <- newEmptyMVar
    _ <- forkFinally (work number) (putMVar result)
    return result
  forM results (takeMVar >=> either (die . show) return)

-- | Calls the operation for each number, and lets others run now and then.
inTurns :: Int -> Int -> (Int -> IO ()) -> IO ()
inTurns !from !to operation = go from
  where
    go !number = when (number < to) $ do
      operation number
      when (number .&. (turn - 1) == turn - 1) yield
      go (number + 1)

-- | A number that looks random, a different one for each number: that of versus/src/scatter.rs.
scatter :: Int -> Word64
scatter number = c `xor` (c `unsafeShiftR` 31)
  where
    a = (fromIntegral number + 1) * 0x9e3779b97f4a7c15 :: Word64
    b = (a `xor` (a `unsafeShiftR` 30)) * 0xbf58476d1ce4e5b9
    c = (b `xor` (b `unsafeShiftR` 27)) * 0x94d049bb133111eb

-- | A number below the range, of the upper half of a scattered one.
below :: Word64 -> Word64 -> Int
below scattered range = fromIntegral (((scattered `unsafeShiftR` 32) * range) `unsafeShiftR` 32)

assertThat :: Bool -> String -> IO ()
assertThat holds what = unless holds (die what)

bank :: Int -> IO Int
bank count = do
  vars <- replicateM accounts (newTVarIO (100 :: Int))
  let account = listArray (0, accounts - 1) vars
      each = count `div` tasks
      total = do
        sums <- atomically (foldM (\ !s var -> (s +) <$> readTVar var) 0 vars)
        assertThat (sums == accounts * 100) "money was lost, or made"
      operation number
        | scattered `mod` 1024 == 0 = total
        | otherwise = atomically $ do
            balance <- readTVar from
            when (balance >= amount) $ do
              writeTVar from $! balance - amount
              modifyTVar' to (+ amount)
        where
          scattered = scatter number
          at = below scattered (fromIntegral accounts)
          distance = 1 + below (scattered `unsafeShiftL` 32) (fromIntegral accounts - 1)
          from = account ! at
          to = account ! ((at + distance) `mod` accounts)
          amount = 1 + fromIntegral (scattered `mod` 50) :: Int
  _ <- together tasks (\task -> inTurns (task * each) ((task + 1) * each) operation)
  total
  return (each * tasks)
  where
    accounts = 1000

data Node = End | Node {-# UNPACK #-} !Int !(TVar Node)

list :: Int -> IO Int
list count = do
  start <- foldM (\rest key -> Node key <$> newTVarIO rest) End (reverse [0, 2 .. keys - 1])
  top <- newTVarIO start
  let each = count `div` tasks
      operation grown number = case scatter number `mod` 10 of
        0 -> atomically (insert top key) >>= \new -> when new (modifyIORef' grown (+ 1))
        1 -> atomically (remove top key) >>= \old -> when old (modifyIORef' grown (subtract 1))
        _ -> void (atomically (find top key >>= \(_, next) -> return $! isKey key next))
        where
          key = below (scatter number) (fromIntegral keys)
  grown <- together tasks $ \task -> do
    grown <- newIORef (0 :: Int)
    inTurns (task * each) ((task + 1) * each) (operation grown)
    readIORef grown
  left <- atomically (walk top)
  assertThat (sort left == left) "the list is not sorted"
  assertThat (length left == keys `div` 2 + sum grown) "a change of the list was lost"
  return (each * tasks)
  where
    keys = 512 :: Int
    walk var = readTVar var >>= \node -> case node of
      End -> return []
      Node key next -> (key :) <$> walk next

isKey :: Int -> Node -> Bool
isKey key (Node here _) = here == key
isKey _ End = False

-- | The last link before the key, and the node that it leads to.
find :: TVar Node -> Int -> STM (TVar Node, Node)
find at key = do
  node <- readTVar at
  case node of
    Node here next | here < key -> find next key
    _ -> return (at, node)

insert :: TVar Node -> Int -> STM Bool
insert top key = do
  (at, next) <- find top key
  if isKey key next
    then return False
    else do
      link <- newTVar next
      writeTVar at $! Node key link
      return True

remove :: TVar Node -> Int -> STM Bool
remove top key = do
  (at, next) <- find top key
  case next of
    Node here link | here == key -> do
      rest <- readTVar link
      writeTVar at $! rest
      return True
    _ -> return False

queue :: Int -> IO Int
queue count = do
  vars <- replicateM capacity (newTVarIO Nothing)
  lastVar <- newTVarIO (0 :: Int)
  firstVar <- newTVarIO (0 :: Int)
  let slots = listArray (0, capacity - 1) vars
      slot number = slots ! (number .&. (capacity - 1))
      each = count `div` ends
      put message = do
        at <- readTVar lastVar
        full <- readTVar (slot at)
        case full of
          Just _ -> retry
          Nothing -> do
            writeTVar (slot at) $! Just message
            writeTVar lastVar $! at + 1
      take' = do
        at <- readTVar firstVar
        full <- readTVar (slot at)
        case full of
          Nothing -> retry
          Just message -> do
            writeTVar (slot at) Nothing
            writeTVar firstVar $! at + 1
            return message
  results <- newEmptyMVar
  _ <- forkIO (together ends (\_ -> replicateM each (atomically take')) >>= putMVar results)
  _ <- together ends (\task -> forM_ [task * each .. (task + 1) * each - 1] (\m -> atomically (put $! m)))
  got <- takeMVar results
  assertThat (sort (concat got) == [0 .. ends * each - 1]) "a message was lost, or came twice"
  return (each * ends)
  where
    capacity = 64 :: Int
    ends = 64 :: Int

hot :: Int -> IO Int
hot count = do
  var <- newTVarIO (0 :: Int)
  let each = count `div` tasks
  _ <- together tasks (\_ -> inTurns 0 each (\_ -> atomically (modifyTVar' var (+ 1))))
  value <- readTVarIO var
  assertThat (value == each * tasks) "a transaction was lost, or came twice"
  return (each * tasks)
